package guest

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// MetaPackage is the Debian package that depends on the newest cloud kernel.
const MetaPackage = "linux-image-cloud-amd64"

// Modules are those of links, queues and captures that a stock machine loads on demand. A guest has no
// modprobe.
var Modules = []string{
	"veth", "bridge", "vxlan", "ifb",
	"sch_tbf", "sch_netem", "sch_fq", "sch_htb", "sch_red", "sch_prio", "sch_fq_codel", "sch_sfq", "sch_ingress",
	"nfnetlink", "nf_tables",
	"cls_u32", "cls_bpf", "cls_matchall", "act_mirred", "act_gact",
	"tcp_bbr", "tcp_dctcp",
}

// Unavailable is the reason why no guest can run here.
type Unavailable struct{ Err error }

func (u Unavailable) Error() string { return u.Err.Error() }

// Unwrap returns the reason.
func (u Unavailable) Unwrap() error { return u.Err }

// Kernel is a kernel with its modules.
type Kernel struct {
	Release string // as printed by uname -r
	Image   string // path of vmlinuz
	// UserMode is set for user-mode Linux, whose image is a program of this machine.
	UserMode bool
	modules  string // directory with the modules
}

// CacheDir returns the directory of unpacked kernels of this user.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "testbed", "vm"), err
}

// Env is the environment variable with the kernel of guests, as Find takes it.
const Env = "TESTBED_KERNEL"

// Find returns a kernel that this machine has, in this order: the one that is asked for or, without one, that of
// the variable Env, as a directory with boot and lib/modules, such as an unpacked package, a .deb file, or a kernel of
// user-mode Linux; the newest in CacheDir; the newest installed. It fetches and installs nothing.
func Find(ctx context.Context, ask string) (Kernel, error) {
	cache, err := CacheDir()
	if err != nil {
		return Kernel{}, Unavailable{err}
	}
	if ask = cmp.Or(ask, os.Getenv(Env)); strings.HasSuffix(ask, ".deb") {
		return Fetch(ctx, ask, cache, func(string, ...any) {})
	} else if UserMode(ask) {
		return openUserMode(ctx, ask)
	} else if ask != "" {
		return openKernel(ask)
	}
	if k, err := newestCached(cache); err == nil {
		return k, nil
	}
	k, err := openKernel("/")
	if err != nil {
		err = Unavailable{fmt.Errorf("%w: %s, or name an unpacked kernel package in %s", err, Install, Env)}
	}
	return k, err
}

// Fetch returns the requested kernel: the name of a package, the path of a package
// file or, if empty, the newest version of MetaPackage. It unpacks the package into cache
// unless it is there, and installs nothing.
func Fetch(ctx context.Context, ask, cache string, say func(string, ...any)) (Kernel, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Kernel{}, Unavailable{fmt.Errorf("cache of kernels: %w", err)}
	}
	if strings.HasSuffix(ask, ".deb") {
		dir, err := os.MkdirTemp(cache, "file-")
		if err != nil {
			return Kernel{}, Unavailable{err}
		}
		if err := unpack(ctx, ask, dir); err != nil {
			return Kernel{}, errors.Join(Unavailable{err}, os.RemoveAll(dir))
		}
		return openKernel(dir)
	}
	name, version, err := resolve(ctx, ask)
	if err != nil && os.Geteuid() == 0 {
		say("%v: updating the package lists", err)
		if _, err2 := output(ctx, "apt-get", "update"); err2 != nil {
			say("%v", err2)
		}
		name, version, err = resolve(ctx, ask)
	}
	if err != nil {
		if k, err2 := newestCached(cache); ask == "" && err2 == nil {
			say("%v: using %s from the cache", err, k.Release)
			return k, nil
		}
		return Kernel{}, Unavailable{err}
	}
	dir := filepath.Join(cache, name+"_"+version)
	if k, err := openKernel(dir); err == nil {
		return k, nil
	}
	say("fetching %s %s into %s", name, version, cache)
	part, err := os.MkdirTemp(cache, "part-")
	if err != nil {
		return Kernel{}, Unavailable{err}
	}
	defer func() { _ = os.RemoveAll(part) }() // does not exist after success: it was renamed
	cmd := exec.CommandContext(ctx, "apt-get", "download", name)
	cmd.Dir = part
	if out, err := cmd.CombinedOutput(); err != nil {
		return Kernel{}, Unavailable{fmt.Errorf("fetch %s: %w: %s", name, err, bytes.TrimSpace(out))}
	}
	debs, err := filepath.Glob(filepath.Join(part, "*.deb"))
	if err != nil || len(debs) != 1 {
		return Kernel{}, Unavailable{fmt.Errorf("fetch %s: expected 1 package from apt-get, got %d", name, len(debs))}
	}
	tree := filepath.Join(part, "tree")
	if err := unpack(ctx, debs[0], tree); err != nil {
		return Kernel{}, Unavailable{err}
	}
	if err := errors.Join(os.RemoveAll(dir), os.Rename(tree, dir)); err != nil {
		return Kernel{}, Unavailable{err}
	}
	return openKernel(dir)
}

// resolve returns the package that contains the kernel, and its version.
func resolve(ctx context.Context, ask string) (name, version string, err error) {
	name = ask
	if name == "" {
		name = MetaPackage
	}
	for range 2 { // a metapackage depends on the package with the files
		out, err := output(ctx, "apt-cache", "show", "--no-all-versions", name)
		if err != nil {
			return "", "", fmt.Errorf("package %s: not in the package lists of apt (%w)", name, err)
		}
		var next string
		for line := range strings.Lines(out) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch key {
			case "Version":
				version = value
			case "Depends":
				for _, d := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == '|' }) {
					if d = strings.Fields(d + " x")[0]; strings.HasPrefix(d, "linux-image-") {
						next = d
					}
				}
			}
		}
		if next == "" {
			return name, version, nil
		}
		name = next
	}
	return "", "", fmt.Errorf("package %s: has no kernel and depends on none", name)
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return string(out), nil
}

func unpack(ctx context.Context, deb, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	_, err := output(ctx, "dpkg-deb", "-x", deb, dir)
	return err
}

// newestCached returns the most recently unpacked kernel.
func newestCached(cache string) (Kernel, error) {
	dirs, err := filepath.Glob(filepath.Join(cache, "linux-image-*"))
	if err != nil || len(dirs) == 0 {
		return Kernel{}, errors.Join(err, fs.ErrNotExist)
	}
	slices.SortFunc(dirs, func(a, b string) int { return int(modified(a) - modified(b)) })
	return openKernel(dirs[len(dirs)-1])
}

func modified(p string) int64 {
	info, err := os.Stat(p)
	if err != nil {
		return 0
	}
	return info.ModTime().Unix()
}

// openKernel finds the image and the modules of the newest kernel in a root directory, such as an unpacked
// package. Debian 13 has its modules in usr/lib.
func openKernel(dir string) (Kernel, error) {
	if _, err := os.ReadDir(filepath.Join(dir, "boot")); err != nil { // which Glob does not report
		return Kernel{}, Unavailable{err}
	}
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil {
		return Kernel{}, err
	}
	if len(images) == 0 {
		return Kernel{}, Unavailable{fmt.Errorf("%s has no kernel", filepath.Join(dir, "boot"))}
	}
	newest := slices.MaxFunc(images, func(a, b string) int { return int(modified(a) - modified(b)) })
	k := Kernel{Release: strings.TrimPrefix(filepath.Base(newest), "vmlinuz-"), Image: newest}
	for _, lib := range []string{"lib", "usr/lib"} {
		k.modules = filepath.Join(dir, lib, "modules", k.Release)
		if _, err = os.Stat(k.modules); err == nil {
			return k, nil
		}
	}
	return Kernel{}, Unavailable{fmt.Errorf("%s: no modules for %s: %w", dir, k.Release, err)}
}

// module is a module to load, with its uncompressed content.
type module struct {
	name string
	data []byte
}

// load returns the wanted modules and their dependencies, in an order in which they can be
// loaded. A package contains no modules.dep, which is generated at installation, so the
// dependencies are read from the modules.
func (k Kernel) load(ctx context.Context, wanted []string) ([]module, error) {
	if k.UserMode {
		return nil, nil // all are built in
	}
	builtin := map[string]bool{}
	list, err := os.ReadFile(filepath.Join(k.modules, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(list)) {
		builtin[moduleName(strings.TrimSpace(line))] = true
	}
	files := map[string]string{}
	err = filepath.WalkDir(k.modules, func(p string, d fs.DirEntry, err error) error {
		if err == nil && strings.Contains(d.Name(), ".ko") && !d.IsDir() {
			files[moduleName(p)] = p
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return inOrder(wanted, func(name string) (*module, []string, error) {
		if builtin[name] {
			return nil, nil, nil
		}
		file, ok := files[name]
		if !ok {
			return nil, nil, fmt.Errorf("kernel %s has no module %s", k.Release, name)
		}
		data, err := readModule(ctx, file)
		if err != nil {
			return nil, nil, err
		}
		needs, err := dependencies(data)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
		return &module{name, data}, needs, nil
	})
}

// inOrder returns modules after their dependencies. read returns no module for a name
// that needs no loading.
func inOrder(wanted []string, read func(name string) (*module, []string, error)) ([]module, error) {
	var order []module
	seen := map[string]bool{}
	var visit func(name string) error
	visit = func(name string) error {
		if seen[name] {
			return nil
		}
		seen[name] = true // before its dependencies, so that cycles end
		m, needs, err := read(name)
		if err != nil {
			return err
		}
		for _, n := range needs {
			if err := visit(n); err != nil {
				return fmt.Errorf("%s needs it: %w", name, err)
			}
		}
		if m != nil {
			order = append(order, *m)
		}
		return nil
	}
	for _, name := range wanted {
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// moduleName returns the canonical name of a module: file names have dashes or underscores.
func moduleName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

func readModule(ctx context.Context, file string) ([]byte, error) {
	switch filepath.Ext(file) {
	case ".ko":
		return os.ReadFile(file)
	case ".xz", ".zst", ".gz":
		tool := map[string]string{".xz": "xz", ".zst": "zstd", ".gz": "gzip"}[filepath.Ext(file)]
		out, err := exec.CommandContext(ctx, tool, "-dc", file).Output()
		if err != nil {
			return nil, Unavailable{fmt.Errorf("unpack %s: %s: %w", file, tool, err)}
		}
		return out, nil
	}
	return nil, fmt.Errorf("%s: unknown compression: expected .ko, .xz, .zst or .gz", file)
}

// dependencies returns the names after "depends=" in a module's .modinfo.
func dependencies(data []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, errors.New("no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	var needs []string
	for field := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(field, "depends="); ok {
			for name := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' }) {
				needs = append(needs, strings.ReplaceAll(name, "-", "_"))
			}
		}
	}
	return needs, nil
}
