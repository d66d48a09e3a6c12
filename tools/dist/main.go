// Command dist packages what make has built: binaries for each architecture, archives, .deb and
// .rpm packages, wheels for pip, images without a base, lists of components, and checksums. The same commit and
// the same Go give the same bytes on any machine.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

const (
	program = "usr/bin/testbed"
	license = "Apache-2.0"
	summary = "Emulates leaf-spine clusters and compares policies on real packets"
	// workDir is the working directory of images, in which every user can write runs.
	workDir = "work"
)

var architectures = []string{"amd64", "arm64"}

// release is what is packaged.
type release struct {
	version string
	ldflags string
	source  string // root of the source tree
	built   string // what make has built in it
	out     string
	time    time.Time
}

// file is a file of a package: its path without a leading slash, and its mode.
type file struct {
	path string
	mode fs.FileMode
	from string // empty for a directory
}

func main() {
	var r release
	var epoch int64
	flag.StringVar(&r.version, "version", "", "version of testbed")
	flag.StringVar(&r.ldflags, "ldflags", "", "flags of the linker")
	flag.StringVar(&r.source, "source", ".", "root `directory` of the source tree")
	flag.StringVar(&r.built, "built", "bin", "`directory` of what make has built")
	flag.StringVar(&r.out, "o", "", "`directory` to write, which is replaced")
	flag.Int64Var(&epoch, "epoch", 0, "time of all files, in `seconds` since 1970")
	flag.Parse()
	if r.version == "" || r.out == "" || epoch == 0 || flag.NArg() != 0 {
		fmt.Fprintln(os.Stderr, "dist: expected -version, -o and -epoch (make dist sets them)")
		os.Exit(2)
	}
	r.time = time.Unix(epoch, 0).UTC()
	if err := r.make(); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func (r release) make() error {
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	stage, err := os.MkdirTemp("", "testbed-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	installed, err := r.install(stage)
	if err != nil {
		return err
	}
	for _, arch := range architectures {
		if err := r.pack(arch, stage, installed); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	return r.sums()
}

// install returns what make install installs, and the documents of a package.
func (r release) install(stage string) ([]file, error) {
	if err := r.run(nil, "make", "-s", "install", "OUT="+r.built, "DESTDIR="+stage, "PREFIX=/usr"); err != nil {
		return nil, err
	}
	list, err := os.ReadFile(filepath.Join(stage, "usr/share/testbed/installed"))
	if err != nil {
		return nil, err
	}
	var all []file
	for installed := range strings.Lines(string(list)) {
		installed = strings.TrimPrefix(strings.TrimSpace(installed), "/")
		if installed != program {
			all = append(all, file{installed, 0o644, filepath.Join(stage, installed)})
		}
	}
	for _, doc := range []string{"README.md", "CHANGELOG.md", "CITATION.cff", "scripts/ci/pull-request.yml"} {
		all = append(all, file{"usr/share/doc/testbed/" + path.Base(doc), 0o644, filepath.Join(r.source, doc)})
	}
	return append(all, file{"usr/share/doc/testbed/copyright", 0o644, filepath.Join(r.source, "LICENSE")}), nil
}

// pack writes everything for an architecture.
func (r release) pack(arch, stage string, installed []file) error {
	binary := filepath.Join(stage, arch)
	env := []string{"GOOS=linux", "GOARCH=" + arch, "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS="}
	err := r.run(env, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", r.ldflags, "-o", binary, ".")
	if err != nil {
		return err
	}
	base := filepath.Join(r.out, "testbed-"+r.version+"-linux-"+arch)
	all := append([]file{{program, 0o755, binary}}, installed...)
	archive := func(w io.Writer) error {
		z := gzip.NewWriter(w)
		return errors.Join(r.tar(z, all, "usr"), z.Close())
	}
	sbom := []string{"-C", "tools/dist", "tool", "cyclonedx-gomod", "bin", "-json", "-noserial", "-notimestamp",
		"-version", r.version, "-output"}
	return errors.Join(
		write(base+".tar.gz", archive),
		r.packages(arch, all),
		r.wheel(arch, binary),
		r.image(arch, base+"-image.tar", all[0]),
		r.run([]string{"GOFLAGS=-trimpath"}, "go", append(sbom, base+".cdx.json", binary)...),
	)
}

// tar writes files below a directory, which is left out of their names.
func (r release) tar(w io.Writer, all []file, below string) error {
	t := tar.NewWriter(w)
	for _, f := range all {
		name, err := filepath.Rel(below, f.path)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: name, Mode: int64(f.mode.Perm()), ModTime: r.time, Typeflag: tar.TypeReg,
			Format: tar.FormatUSTAR}
		var content []byte
		if f.from == "" {
			h.Name, h.Typeflag = name+"/", tar.TypeDir
			if f.mode&fs.ModeSticky != 0 {
				h.Mode |= 0o1000
			}
		} else if content, err = os.ReadFile(f.from); err != nil {
			return err
		}
		h.Size = int64(len(content))
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(content); err != nil {
			return err
		}
	}
	return t.Close()
}

// packages writes the .deb and .rpm packages.
func (r release) packages(arch string, all []file) error {
	for _, format := range []string{"deb", "rpm"} {
		info := &nfpm.Info{
			Name: "testbed", Arch: arch, Platform: "linux", Version: r.version, Section: "science",
			Maintainer: "The testbed authors", Description: summary, License: license, MTime: r.time,
			DisableGlobbing: true,
		}
		info.Recommends = []string{"e2fsprogs"} // mkfs.ext4, for disks throttled by the kernel
		info.RPM.BuildHost = "localhost"        // by default the name of this machine
		for _, f := range all {
			info.Contents = append(info.Contents, &files.Content{
				Source: f.from, Destination: "/" + f.path,
				FileInfo: &files.ContentFileInfo{Mode: f.mode, MTime: r.time},
			})
		}
		info = nfpm.WithDefaults(info)
		p, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return err
		}
		to := filepath.Join(r.out, p.ConventionalFileName(info))
		if err := write(to, func(w io.Writer) error { return p.Package(info, w) }); err != nil {
			return err
		}
	}
	return nil
}

// image writes an archive of an image that has the program alone.
func (r release) image(arch, to string, program file) error {
	var layer bytes.Buffer
	all := []file{
		{"tmp", fs.ModeSticky | 0o777, ""},
		{workDir, fs.ModeSticky | 0o777, ""},
		program,
	}
	if err := r.tar(&layer, all, "."); err != nil {
		return err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	})
	if err != nil {
		return err
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return err
	}
	config := &v1.ConfigFile{
		Architecture: arch,
		OS:           "linux",
		Created:      v1.Time{Time: r.time},
		Config: v1.Config{
			Entrypoint: []string{"/" + program.path},
			Cmd:        []string{"--help"},
			WorkingDir: "/" + workDir,
			Env:        []string{"PATH=/usr/bin"},
			Labels: map[string]string{
				"org.opencontainers.image.title":       "testbed",
				"org.opencontainers.image.description": summary,
				"org.opencontainers.image.version":     r.version,
				"org.opencontainers.image.licenses":    license,
			},
		},
	}
	was, err := img.ConfigFile()
	if err != nil {
		return err
	}
	config.RootFS = was.RootFS
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return err
	}
	tag, err := name.NewTag("testbed:"+strings.ReplaceAll(r.version, "+", "-"), name.WithDefaultRegistry(""))
	if err != nil {
		return err
	}
	return write(to, func(w io.Writer) error { return tarball.Write(tag, img, w) })
}

// sums writes the checksums of all files.
func (r release) sums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), e.Name())
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// run runs a command in the source tree.
func (r release) run(env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = r.source
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", path.Base(name), strings.Join(args, " "), err, out)
	}
	return nil
}

func write(path string, content func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(content(f), f.Close())
}
