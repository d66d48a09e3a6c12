package calibration

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

// Env is the environment variable that names the file to use instead of the
// machine's own.
const Env = "TESTBED_CALIBRATION"

// Path is the file of this machine and kernel: the value of Env, or one in the
// cache of the user, under sudo of the user who called it.
func Path() (string, error) {
	if path := os.Getenv(Env); path != "" {
		return path, nil
	}
	cache, err := cacheDir()
	if err != nil {
		return "", fmt.Errorf("find the calibration of this machine: %w (name a file with %s)", err, Env)
	}
	return filepath.Join(cache, "testbed", "calibration-"+MachineID()+"-"+strings.ReplaceAll(Kernel(), "/", "_")+".json"), nil
}

func cacheDir() (string, error) {
	if dir := os.Getenv("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	if name := os.Getenv("SUDO_USER"); name != "" && os.Geteuid() == 0 {
		u, err := user.Lookup(name)
		if err != nil {
			return "", err
		}
		return filepath.Join(u.HomeDir, ".cache"), nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".cache"), err
}

// MachineID tells machines apart without giving away the id that the system
// keeps: the beginning of a hash of it, or of the host's name where it keeps
// none.
func MachineID() string {
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil || len(strings.TrimSpace(string(id))) == 0 {
		name, _ := os.Hostname() // no name is a name too
		id = []byte("host " + name)
	}
	sum := sha256.Sum256([]byte("testbed calibration\n" + strings.TrimSpace(string(id))))
	return hex.EncodeToString(sum[:6])
}

// Kernel is the release of the running kernel.
func Kernel() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

// Load reads the file at Path. Without a file it is nil, unless Env names one.
func Load() (*Calibration, error) {
	path, err := Path()
	if err != nil {
		if os.Getenv(Env) == "" {
			return nil, nil // a user without a home has no calibration
		}
		return nil, err
	}
	c, err := Read(path)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv(Env) == "" {
		return nil, nil
	}
	return c, err
}

// maxFile is the largest file that is read, in bytes.
const maxFile = 16 << 20

// Read reads a calibration and checks that it makes sense.
func Read(path string) (*Calibration, error) {
	again := `(measure again with "testbed calibrate", or remove the file)`
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxFile) {
		return nil, fmt.Errorf("read calibration %s: want a regular file of at most %d bytes", path, maxFile)
	}
	if err != nil {
		return nil, fmt.Errorf("read calibration: %w", err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read calibration: %w", err)
	}
	var c Calibration
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("read calibration %s: %w %s", path, err, again)
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("read calibration %s: %w %s", path, err, again)
	}
	return &c, nil
}

func (c *Calibration) check() error {
	if c.Version != Version {
		return fmt.Errorf("version %d: this program reads version %d", c.Version, Version)
	}
	var errs []error
	for _, l := range c.Links {
		if l.Rate <= 0 || l.MTU <= tcpHeaders {
			errs = append(errs, fmt.Errorf("link of %v at MTU %d: want a positive rate and an MTU above %d", l.Rate, int64(l.MTU), int64(tcpHeaders)))
		}
		for i, b := range l.Bursts {
			if b.Size <= 0 || i > 0 && b.Size <= l.Bursts[i-1].Size {
				errs = append(errs, fmt.Errorf("link of %v at MTU %d: burst %d: want ascending sizes", l.Rate, int64(l.MTU), int64(b.Size)))
			}
		}
	}
	for _, x := range c.Capacity {
		if x.MTU <= tcpHeaders || x.Packets <= 0 || x.Cost <= 0 || x.Links <= 0 {
			errs = append(errs, fmt.Errorf("capacity at MTU %d: %v packets/s on %d links at %v each: want all above 0", int64(x.MTU), x.Packets, x.Links, x.Cost))
		}
	}
	return errors.Join(errs...)
}

// Write replaces the file at path as one step, makes its directory if need be,
// and hands what it made to the user who called sudo.
func (c *Calibration) Write(path string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write calibration: %w", err)
		}
	}()
	data, err := json.MarshalIndent(c, "", "\t")
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	made := missing(dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, d := range made {
		if err := give(d); err != nil {
			return err
		}
	}
	f, err := os.CreateTemp(dir, ".calibration-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = give(f.Name())
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// missing is the directories on the way to dir that are not there.
func missing(dir string) []string {
	var out []string
	for {
		if _, err := os.Lstat(dir); err == nil || dir == filepath.Dir(dir) {
			return out
		}
		out = append(out, dir)
		dir = filepath.Dir(dir)
	}
}

// give hands a file to the user who called sudo.
func give(path string) error {
	uid, err1 := strconv.Atoi(os.Getenv("SUDO_UID"))
	gid, err2 := strconv.Atoi(os.Getenv("SUDO_GID"))
	if err1 != nil || err2 != nil || os.Geteuid() != 0 {
		return nil
	}
	return os.Lchown(path, uid, gid)
}
