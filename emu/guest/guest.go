// Package guest runs a program as the only one of a virtual machine, which qemu emulates in software. It
// needs no KVM and no root: a stock kernel, an initramfs that is built in memory, and qemu. A kernel of user-mode Linux
// needs no qemu.
//
// With Machine.Virtual the machine is in virtual time: its clock counts its instructions, or under user-mode Linux
// nothing, and jumps over idle time, so that nothing outside of it can disturb it, and equal images leave equal output.
//
// The package does not know what the program does.
package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Program is the emulator, and Package what has it on Debian.
const (
	Program = "qemu-system-x86_64"
	Package = "qemu-system-x86"
)

// Install is the command that installs, on Debian, what guests need.
const Install = "apt-get install --no-install-recommends " + Package + " " + MetaPackage

// Speeds of a machine in virtual time, in instructions in a nanosecond. At boot, 100 ms of instructions go into the
// calibration of its timer.
const (
	DefaultSpeed = 4
	MostSpeed    = 16
)

// Machine is a virtual machine.
type Machine struct {
	Kernel     Kernel
	Image      *Image
	Memory     int // MB
	Processors int // of a machine in real time; one in virtual time has one
	Virtual    bool
	// Speed is the number of instructions that a machine in virtual time executes in a nanosecond.
	Speed int
	// Console is the file for messages of the kernel.
	Console string
	// Ports are regular files, in the directory of Console under user-mode Linux. The guest appends to them what it writes to Port.
	Ports []*os.File
	// Args are further arguments of qemu, and Stdout is its output.
	Args   []string
	Stdout io.Writer
}

// PortModules are what a guest with ports needs.
var PortModules = []string{"virtio_pci", "virtio_console"}

// Look returns the path of qemu, or why it cannot run here.
func Look() (string, error) {
	if runtime.GOARCH != "amd64" {
		return "", Unavailable{fmt.Errorf("the guest is x86-64 and uses programs of this machine, which is %s",
			runtime.GOARCH)}
	}
	found, err := exec.LookPath(Program)
	if err != nil {
		return "", Unavailable{fmt.Errorf("%w: %s", err, Install)}
	}
	return found, nil
}

// Version returns the version of qemu.
func Version(ctx context.Context) (string, error) {
	qemu, err := Look()
	if err != nil {
		return "", err
	}
	out, err := output(ctx, qemu, "--version")
	line, _, _ := strings.Cut(out, "\n")
	return strings.TrimPrefix(line, "QEMU emulator version "), err
}

// killWait is the time that qemu gets to end before it is killed.
const killWait = 5 * time.Second

// Run runs the machine until it powers off. When ctx or this process ends, so does the machine.
func (m Machine) Run(ctx context.Context) (err error) {
	program, args := m.Kernel.Image, []string(nil)
	if m.Kernel.UserMode {
		args = m.userModeArguments()
	} else if program, err = Look(); err != nil {
		return err
	} else {
		args = m.arguments()
	}
	initrd, err := m.Image.memory()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, initrd.Close()) }()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.ExtraFiles = append([]*os.File{initrd}, m.Ports...)
	var complaints bytes.Buffer
	cmd.Stderr, cmd.Stdout = &complaints, m.Stdout
	if m.Kernel.UserMode {
		console, err := os.Create(m.Console)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, console.Close()) }()
		cmd.Dir, cmd.Stderr, cmd.Stdout = filepath.Dir(m.Console), console, console
		// It leaves a directory for its management console there.
		cmd.Env = append(os.Environ(), "HOME=/proc/self/cwd")
		defer func() { err = errors.Join(err, os.RemoveAll(filepath.Join(cmd.Dir, ".uml"))) }()
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = killWait
	// A group of its own keeps Ctrl-C from ending it before its caller, which then took that for its end.
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: true}
	// The signal comes when the thread ends that started the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return Unavailable{err}
	}
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("guest: %w %s", err, bytes.TrimSpace(complaints.Bytes()))
	}
	return nil
}

// arguments returns the arguments of qemu, which has the image as file 3 and the ports from 4 on.
func (m Machine) arguments() []string {
	// Without erms and fsrm a kernel copies and clears by the word, not by the byte.
	args := []string{
		"-m", strconv.Itoa(m.Memory), "-display", "none", "-monitor", "none", "-nodefaults", "-no-user-config",
		"-no-reboot",
		"-kernel", m.Kernel.Image, "-initrd", "/proc/self/fd/3", "-serial", "file:" + m.Console,
	}
	// A panic restarts the guest at once; -no-reboot makes qemu exit instead.
	boot := []string{"console=ttyS0", "panic=-1", "rdinit=" + initPath}
	if m.Virtual {
		args = append(args,
			"-accel", "tcg,thread=single", "-smp", "1",
			// Without the timers of a PC the kernel has none but those of the processor. It takes their frequency
			// from the one of its time stamp counter, which its arguments state: Speed times the true one. So all of
			// its clocks are slower by that.
			"-machine", "microvm,acpi=on,pit=off,pic=off,rtc=on,isa-serial=on,pcie=on",
			// One instruction is one nanosecond of qemu, and idle time passes at once. Recording, to nowhere, makes qemu
			// order its events by the count of instructions, not as threads of the host happen to run.
			"-icount", "shift=0,sleep=off,align=off,rr=record,rrfile=/dev/null",
			// Random numbers are of the host.
			"-cpu", "max,-rdrand,-rdseed,-erms,-fsrm",
			"-seed", "1", // of the random numbers that qemu gives a guest: some versions give it a seed at boot
			"-rtc", "base=2026-01-01,clock=vm")
		// Addresses of the kernel, and its random numbers, are the same at each boot.
		boot = append(boot, "loglevel=3", "nokaslr", "random.trust_cpu=off",
			fmt.Sprintf("tsc_early_khz=%d000000", m.Speed), "tsc=reliable",
			// A guest runs one program, and needs no protection from it.
			"mitigations=off", "init_on_alloc=0")
	} else {
		args = append(args, "-accel", "tcg,thread=multi", "-cpu", "max,-erms,-fsrm", "-smp", strconv.Itoa(m.Processors))
		// Otherwise the kernel distrusts the time stamp counters of several processors, which qemu keeps equal, and reads
		// the time from an emulated device, thirty times slower.
		boot = append(boot, "loglevel=5", "tsc=reliable", "mitigations=off")
	}
	args = append(args, "-append", strings.Join(boot, " "))
	if len(m.Ports) > 0 {
		// Another thread of qemu would serve the ports when it happens to run.
		args = append(args, "-device", "virtio-serial-pci,ioeventfd=off")
	}
	for i := range m.Ports {
		args = append(args, "-chardev", fmt.Sprintf("file,id=port%d,path=/proc/self/fd/%d,append=on", i, 4+i),
			"-device", fmt.Sprintf("virtserialport,nr=%d,chardev=port%d", i+1, i))
	}
	return append(args, m.Args...)
}

// memory returns a file in memory with the archive.
func (im *Image) memory() (*os.File, error) {
	fd, err := unix.MemfdCreate("initrd", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("image of the guest: %w", err)
	}
	f := os.NewFile(uintptr(fd), "initrd")
	if err := im.write(f); err != nil {
		return nil, errors.Join(fmt.Errorf("image of the guest: %w", err), f.Close())
	}
	return f, nil
}
