package disk

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"testbed/results/safefile"
	"testbed/topo/units"
)

// fullBelow is the free space below which a file system counts as full when a write to
// a loop device over it has failed.
const fullBelow = 1 * units.MiB

// fullBacking reports whether err, the failure of a write in dir, is caused by a full
// file system under the loop device of dir. It returns the directory of the device's
// file and the free space there. Some file systems report such a write as an
// input/output error, and the file system on the device may then become read-only.
func fullBacking(dir string, err error) (backing string, free units.Bytes, full bool) {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.EROFS) {
		return "", 0, false
	}
	var st syscall.Stat_t
	if syscall.Stat(dir, &st) != nil {
		return "", 0, false
	}
	major, minor := st.Dev>>8&0xfff|st.Dev>>32&^0xfff, st.Dev&0xff|st.Dev>>12&^0xff
	file, readErr := safefile.Read(fmt.Sprintf("/sys/dev/block/%d:%d/loop/backing_file", major, uint32(minor)))
	if readErr != nil {
		return "", 0, false // not on a loop device
	}
	backing = filepath.Dir(strings.TrimSuffix(string(file), "\n"))
	var fs syscall.Statfs_t
	if syscall.Statfs(backing, &fs) != nil {
		return "", 0, false
	}
	free = units.Bytes(fs.Bfree) * units.Bytes(fs.Bsize)
	return backing, free, free < fullBelow
}
