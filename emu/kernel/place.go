package kernel

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Place is where this process runs, as far as it decides what works.
type Place struct {
	Container string // the kind of container; empty outside
	WSL       int    // version of the Windows Subsystem for Linux; 0 outside
	CI        bool   // a job of continuous integration
	UserSpace bool   // a user namespace, in which root is another user of the machine
	User      int
}

// Here returns the place of this process.
func Here() Place { return findPlace(os.DirFS("/"), os.Getenv, os.Geteuid()) }

// findPlace finds a place in a root directory, environment variables and a user id.
func findPlace(root fs.FS, env func(string) string, user int) Place {
	p := Place{User: user, Container: env("container"), CI: env("CI") != "" && env("CI") != "false"}
	for _, mark := range []struct{ file, kind string }{{".dockerenv", "docker"}, {"run/.containerenv", "podman"}} {
		if _, err := fs.Stat(root, mark.file); err == nil {
			p.Container = cmp.Or(p.Container, mark.kind)
		}
	}
	if env("KUBERNETES_SERVICE_HOST") != "" {
		p.Container = "kubernetes"
	}
	if release, err := fs.ReadFile(root, "proc/sys/kernel/osrelease"); err == nil {
		switch { // version 1 has "4.4.0-19041-Microsoft", and version 2 "5.15.90.1-microsoft-standard-WSL2"
		case strings.Contains(string(release), "microsoft"):
			p.WSL = 2
		case strings.Contains(string(release), "Microsoft"):
			p.WSL = 1
		}
	}
	if ids, err := fs.ReadFile(root, "proc/self/uid_map"); err == nil {
		p.UserSpace = strings.Join(strings.Fields(string(ids)), " ") != "0 0 4294967295"
	}
	return p
}

func (p Place) String() string {
	var in []string
	if p.Container != "" {
		in = append(in, "a container ("+p.Container+")")
	}
	if p.WSL != 0 {
		in = append(in, fmt.Sprintf("WSL %d", p.WSL))
	}
	if p.CI {
		in = append(in, "a CI job")
	}
	if p.UserSpace {
		in = append(in, "a user namespace")
	}
	if in == nil {
		in = append(in, "no container")
	}
	return fmt.Sprintf("in %s, as user %d", strings.Join(in, ", in "), p.User)
}

// What gives a place the privileges of a run.
const (
	withRights  = "--cap-add NET_ADMIN --cap-add SYS_ADMIN --cap-add NET_RAW --tmpfs /run"
	writableSys = "mount -o remount,bind,rw /proc/sys"
	inUserSpace = "TESTBED_STATE_DIR=$HOME/testbeds unshare -rmn"
)

// Remedy returns what makes packets work here, as far as the place decides it.
func (p Place) Remedy() string {
	switch {
	case p.WSL == 1:
		return "WSL 1 has no Linux kernel: wsl --set-version DISTRIBUTION 2"
	case p.Container != "" && p.CI:
		return "run the job's container with the option --privileged, as root, or the job without a container and with sudo"
	case p.Container == "kubernetes":
		return "set securityContext.privileged of the container to true, and run it as root"
	case p.Container != "" && p.User != 0:
		return "run it as root; if that fails too, doctor then states what the container needs"
	case p.Container != "":
		return "start the container with --privileged, or with " + withRights + " and in it: " + writableSys
	case p.User != 0:
		return "run it with sudo, or without: " + inUserSpace + " opens a shell in which all commands work"
	case p.WSL == 2:
		return "wsl --update installs the newest kernel; a feature that it lacks needs a kernel of your own"
	}
	return "what is missing or failed is listed here"
}
