package kernel

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestFindPlace(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	const identity = "         0          0 4294967295\n"
	machine := func(release string, more ...string) fstest.MapFS {
		root := fstest.MapFS{"proc/sys/kernel/osrelease": file(release + "\n"), "proc/self/uid_map": file(identity)}
		for _, name := range more {
			root[name] = file("")
		}
		return root
	}
	rootless := machine("6.8.0-40-generic", "run/.containerenv")
	rootless["proc/self/uid_map"] = file("         0       1000          1\n")
	for _, tt := range []struct {
		name, want, remedy string
		root               fstest.MapFS
		env                map[string]string
		user               int
	}{
		{"a machine", "in no container, as user 0", "listed here", machine("6.8.0-40-generic"), nil, 0},
		{"an ordinary user", "in no container, as user 1000", "unshare -rmn", machine("6.8.0-40-generic"), nil, 1000},
		{"Docker", "in a container (docker), as user 0", "--privileged, or with --cap-add", machine("6.8.0-40-generic", ".dockerenv"), nil, 0},
		{"a user in Docker", "in a container (docker), as user 1000", "as root", machine("6.8.0-40-generic", ".dockerenv"), nil, 1000},
		{"Podman without root", "in a container (podman), in a user namespace, as user 0", "--privileged", rootless, map[string]string{"container": "podman"}, 0},
		{"systemd-nspawn", "in a container (systemd-nspawn), as user 0", "--privileged", machine("6.1.0"), map[string]string{"container": "systemd-nspawn"}, 0},
		{"a pod", "in a container (kubernetes), as user 0", "securityContext.privileged", machine("6.8.0", ".dockerenv"), map[string]string{"KUBERNETES_SERVICE_HOST": "x"}, 0},
		{"WSL 2", "in WSL 2, as user 0", "wsl --update", machine("5.15.90.1-microsoft-standard-WSL2"), nil, 0},
		{"a user of WSL 2", "in WSL 2, as user 1000", "sudo", machine("5.15.90.1-microsoft-standard-WSL2"), nil, 1000},
		{"WSL 1", "in WSL 1, as user 0", "--set-version", machine("4.4.0-19041-Microsoft"), nil, 0},
		{"a CI job", "in a CI job, as user 1001", "sudo", machine("6.8.0-azure"), map[string]string{"CI": "true"}, 1001},
		{"a container of a CI job", "in a container (docker), in a CI job, as user 0", "option --privileged", machine("6.8.0-azure", ".dockerenv"), map[string]string{"CI": "true"}, 0},
	} {
		p := findPlace(tt.root, func(name string) string { return tt.env[name] }, tt.user)
		if p.String() != tt.want || !strings.Contains(p.Remedy(), tt.remedy) {
			t.Errorf("%s: %q, remedy %q, want %q and %q", tt.name, p, p.Remedy(), tt.want, tt.remedy)
		}
	}
}
