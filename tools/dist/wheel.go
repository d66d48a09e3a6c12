package main

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// wheelTags are the platforms of a wheel. The program is static: it needs neither glibc nor musl.
var wheelTags = map[string][]string{
	"amd64": {"manylinux2014_x86_64", "musllinux_1_1_x86_64"},
	"arm64": {"manylinux2014_aarch64", "musllinux_1_1_aarch64"},
}

func wheelName(version, arch string) string {
	return "testbed-" + version + "-py3-none-" + strings.Join(wheelTags[arch], ".") + ".whl"
}

// wheel writes a package for pip: the program, and the modules for policies and learning environments.
func (r release) wheel(arch, binary string) error {
	base := "testbed-" + r.version
	info := base + ".dist-info/"
	python := filepath.Join(r.source, "policies/external/python")
	about := "Metadata-Version: 2.1\nName: testbed\nVersion: " + r.version + "\nSummary: " + summary +
		"\nLicense: " + license + "\nRequires-Python: >=3.8\n"
	kind := "Wheel-Version: 1.0\nGenerator: testbed dist\nRoot-Is-Purelib: false\n"
	for _, tag := range wheelTags[arch] {
		kind += "Tag: py3-none-" + tag + "\n"
	}
	return write(filepath.Join(r.out, wheelName(r.version, arch)), func(w io.Writer) error {
		z := zip.NewWriter(w)
		var record strings.Builder
		add := func(name string, mode fs.FileMode, content []byte) error {
			h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: r.time}
			h.SetMode(mode)
			f, err := z.CreateHeader(h)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(content)
			fmt.Fprintf(&record, "%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(content))
			_, err = f.Write(content)
			return err
		}
		for _, f := range []file{
			{"testbed.py", 0o644, filepath.Join(python, "testbed.py")},
			{"testbed_gym.py", 0o644, filepath.Join(python, "testbed_gym.py")},
			{base + ".data/scripts/testbed", 0o755, binary},
			{info + "LICENSE", 0o644, filepath.Join(r.source, "LICENSE")},
		} {
			content, err := os.ReadFile(f.from)
			if err != nil {
				return err
			}
			if err := add(f.path, f.mode, content); err != nil {
				return err
			}
		}
		for _, f := range []struct{ name, content string }{{"METADATA", about}, {"WHEEL", kind}} {
			if err := add(info+f.name, 0o644, []byte(f.content)); err != nil {
				return err
			}
		}
		record.WriteString(info + "RECORD,,\n")
		if err := add(info+"RECORD", 0o644, []byte(record.String())); err != nil {
			return err
		}
		return z.Close()
	})
}
