package calibration

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"testbed/emu/plan"
	"testbed/results/metrics"
	"testbed/results/safefile"
)

// Env is the environment variable that names the file to use instead of the
// machine's own.
const Env = "TESTBED_CALIBRATION"

// Path returns the file of this machine and kernel: the value of Env, or a file in the cache
// of the user; with sudo, of the user who called it.
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

// MachineID returns an id of the machine that does not reveal the system's own id: the
// beginning of a hash of it, or of the host's name if the system has none.
func MachineID() string {
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil || len(strings.TrimSpace(string(id))) == 0 {
		name, _ := os.Hostname() // an empty name is acceptable
		id = []byte("host " + name)
	}
	sum := sha256.Sum256([]byte("testbed calibration\n" + strings.TrimSpace(string(id))))
	return hex.EncodeToString(sum[:6])
}

// Kernel returns the release of the running kernel.
func Kernel() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

// Load reads the file at Path. Without a file it returns nil, unless Env names one.
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

// Read reads and validates a calibration.
func Read(path string) (*Calibration, error) {
	again := `(run: sudo testbed calibrate, or remove the file)`
	f, err := safefile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read calibration: %w", err)
	}
	defer f.Close() // read only: an error of Close loses nothing
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read calibration: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("read calibration %s: larger than %d bytes %s", path, maxFile, again)
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
		if l.Rate <= 0 || l.MTU <= plan.TCPHeaders {
			errs = append(errs, fmt.Errorf("link of %v at MTU %d: the rate must be positive and the MTU above %d", l.Rate, int64(l.MTU), int64(plan.TCPHeaders)))
		}
		for i, b := range l.Bursts {
			if b.Size <= 0 || i > 0 && b.Size <= l.Bursts[i-1].Size {
				errs = append(errs, fmt.Errorf("link of %v at MTU %d: burst %d: sizes must ascend", l.Rate, int64(l.MTU), int64(b.Size)))
			}
		}
	}
	for _, x := range c.Capacity {
		if x.MTU <= plan.TCPHeaders || x.Packets <= 0 || x.Cost <= 0 || x.Links <= 0 {
			errs = append(errs, fmt.Errorf("capacity at MTU %d: %v packets/s on %d links at %v each: all must be positive", int64(x.MTU), x.Packets, x.Links, x.Cost))
		}
	}
	if n := c.Noise; n != nil {
		for _, by := range []map[string]metrics.Deviations{n.Total, n.Between} {
			for key, d := range by {
				if !(d.MeanRatio >= 0 && d.Median >= 0 && d.GeoMean >= 0) {
					errs = append(errs, fmt.Errorf("noise of %s: %+v: must be 0 or more", key, d))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// Write replaces the file at path in one step, creates its directory if it is missing, and
// gives both to the user who called sudo.
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
	if err := safefile.MkdirAll(filepath.Dir(path)); err != nil {
		return err
	}
	return safefile.WriteData(path, append(data, '\n'))
}
