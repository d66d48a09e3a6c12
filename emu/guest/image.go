package guest

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// entry is one file of an image.
type entry struct {
	mode  uint32 // type and permissions, as in stat(2)
	data  []byte // content of a file, or target of a link
	major uint32 // of a device
	minor uint32
}

// Type bits of a mode in an archive, from cpio(5).
const (
	modeFile   = 0o100000
	modeDir    = 0o040000
	modeLink   = 0o120000
	modeDevice = 0o020000
)

// Image is the content of an initramfs: files by absolute path.
type Image struct{ files map[string]entry }

// NewImage returns an image whose first process is a program of this machine that begins with First.
func NewImage(program string) (*Image, error) {
	im := &Image{files: map[string]entry{}}
	// The kernel opens the console for init before init can mount /dev.
	im.add("/dev/console", entry{mode: modeDevice | 0o600, major: 5, minor: 1})
	im.add(randomPath, entry{mode: modeDevice | 0o600, major: 1, minor: 8})
	for _, dir := range []string{"/proc", "/sys", "/run", "/tmp"} {
		im.Dir(dir)
	}
	im.Text("/etc/passwd", "root:x:0:0:root:/tmp:/bin/sh\n")
	im.Text("/etc/group", "root:x:0:\n")
	im.Text("/etc/hosts", "127.0.0.1 localhost\n")
	im.Text("/etc/nsswitch.conf", "hosts: files\n")
	im.Text(signPath, "")
	return im, im.linked(initPath, program)
}

func (im *Image) add(name string, e entry) {
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if _, ok := im.files[dir]; !ok {
			im.files[dir] = entry{mode: modeDir | 0o755}
		}
	}
	im.files[name] = e
}

// Text adds a file.
func (im *Image) Text(name, text string) { im.Data(name, []byte(text)) }

// Data adds a file, whose content the image keeps.
func (im *Image) Data(name string, data []byte) {
	im.add(name, entry{mode: modeFile | 0o644, data: data})
}

// Dir adds a directory.
func (im *Image) Dir(name string) { im.add(name, entry{mode: modeDir | 0o755}) }

// Modules adds modules of a kernel and those they need, which Setup loads.
func (im *Image) Modules(ctx context.Context, k Kernel, wanted ...string) error {
	list, err := k.load(ctx, wanted)
	for i, m := range list {
		im.Data(fmt.Sprintf("%s/%03d-%s.ko", modulePath, i, m.name), m.data)
	}
	return err
}

// CopyFile adds a file of this machine. It follows links.
func (im *Image) CopyFile(name, from string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	im.add(name, entry{mode: modeFile | uint32(info.Mode().Perm()), data: b})
	return nil
}

// CopyTree adds every file below from for which keep is true. keep gets the path relative
// to from.
func (im *Image) CopyTree(name, from string, keep func(rel string, d fs.DirEntry) bool) error {
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		switch {
		case rel != "." && !keep(rel, d):
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.IsDir():
			im.Dir(path.Join(name, rel))
		case d.Type().IsRegular():
			return im.CopyFile(path.Join(name, rel), p)
		}
		return nil
	})
}

// CopyProgram adds a program of this machine, and the libraries it is linked with.
func (im *Image) CopyProgram(name string) error {
	found, err := LookProgram(name)
	if err != nil {
		return err
	}
	return im.linked(BinaryPath+"/"+name, found)
}

// linked adds a program of this machine under a name, and the libraries it is linked with.
func (im *Image) linked(name, found string) error {
	if err := im.CopyFile(name, found); err != nil {
		return err
	}
	f, err := elf.Open(found)
	if err != nil {
		return err
	}
	defer f.Close()
	if !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return nil
	}
	out, err := exec.Command("ldd", found).CombinedOutput()
	if err != nil {
		return fmt.Errorf("libraries of %s: %w: %s", found, err, bytes.TrimSpace(out))
	}
	for _, lib := range libraries(string(out)) {
		if err := im.CopyFile(lib, lib); err != nil {
			return fmt.Errorf("libraries of %s: %w", found, err)
		}
	}
	return nil
}

// LookProgram finds a program in PATH or in the directories of root's PATH.
func LookProgram(name string) (string, error) {
	found, err := exec.LookPath(name)
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if err != nil {
			found, err = exec.LookPath(filepath.Join(dir, name))
		}
	}
	return found, err
}

// libraries returns the paths in the output of ldd: those after an arrow, and the loader's,
// which has no arrow.
func libraries(ldd string) []string {
	var libs []string
	for line := range strings.Lines(ldd) {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "/") {
				libs = append(libs, word)
				break
			}
		}
	}
	return libs
}

// write writes the archive that the kernel unpacks, in the new ASCII format of cpio(5).
// Directories come before their files.
func (im *Image) write(w io.Writer) error {
	inode := uint32(0)
	for _, name := range slices.Sorted(maps.Keys(im.files)) {
		inode++
		if err := writeEntry(w, strings.TrimPrefix(name, "/"), inode, im.files[name]); err != nil {
			return err
		}
	}
	return writeEntry(w, "TRAILER!!!", 0, entry{})
}

func writeEntry(w io.Writer, name string, inode uint32, e entry) error {
	if uint64(len(e.data)) > 1<<32-1 {
		return errors.New(name + ": larger than the 4 GB limit of the format")
	}
	links := uint32(1)
	if e.mode&modeDir != 0 && e.mode&modeFile != modeFile {
		links = 2
	}
	head := "070701"
	for _, field := range []uint32{inode, e.mode, 0, 0, links, 0, uint32(len(e.data)), 0, 0, e.major, e.minor,
		uint32(len(name) + 1), 0} {
		head += fmt.Sprintf("%08x", field)
	}
	head += name + "\x00"
	for _, part := range [][]byte{[]byte(head), e.data} {
		if _, err := w.Write(part); err != nil {
			return err
		}
		if odd := len(part) % 4; odd != 0 {
			if _, err := w.Write(make([]byte, 4-odd)); err != nil {
				return err
			}
		}
	}
	return nil
}
