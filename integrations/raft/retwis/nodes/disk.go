package nodes

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ErrUnable: this machine lacks what lossy disks need.
var ErrUnable = errors.New("no lossy disks")

// CanHaveDisks returns ErrUnable without root, FUSE, loop devices or ext4's programs.
func CanHaveDisks() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: mounting takes root", ErrUnable)
	}
	for _, device := range []string{"/dev/fuse", "/dev/loop-control"} {
		file, err := os.OpenFile(device, os.O_RDWR, 0)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnable, err)
		}
		_ = file.Close()
	}
	for _, program := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: %w", ErrUnable, err)
		}
	}
	return nil
}

const (
	imageBytes   = 512 << 20
	diskPatience = 60 * time.Second
	breath       = 20 * time.Millisecond
)

// disk is an ext4 file system on power-disk (tests/power), which loses in a power cut what was not flushed. The mounts
// lie in the mount namespace of this process.
type disk struct {
	program, image, served, target string

	keepNothing bool // of what was not flushed, in power cuts

	process *exec.Cmd // nil: the power is off
	in      io.WriteCloser
	said    chan map[string]any // closed when the process ends
	frozen  chan struct{}       // closed when the power went by arm
}

func newDisk(program, folder, name string) (*disk, error) {
	d := &disk{program: program, image: filepath.Join(folder, name+".image"), served: filepath.Join(folder, name+".disk"),
		target: filepath.Join(folder, name)}
	if err := os.MkdirAll(d.target, 0o777); err != nil {
		return nil, err
	}
	if err := os.WriteFile(d.served, nil, 0o666); err != nil {
		return nil, err
	}
	return d, d.format()
}

// format makes the file system anew; the power is off.
func (d *disk) format() error {
	if err := os.RemoveAll(d.image); err != nil {
		return err
	}
	if err := os.WriteFile(d.image, nil, 0o666); err != nil {
		return err
	}
	if err := os.Truncate(d.image, imageBytes); err != nil {
		return err
	}
	return command("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", d.image)
}

func command(name string, arguments ...string) error {
	said, err := exec.Command(name, arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(said)))
	}
	return nil
}

// on turns the power on and mounts the file system.
func (d *disk) on() error {
	// ext4 relies on the block of its superblock being written whole: docs/testing.md.
	d.process = exec.Command(d.program, "--image", d.image, "--fuse", d.served, "--atom", "512", "--whole", "0", "4096")
	// The disk ends with its input, in order: a disk that is killed as the last process of the mount namespace would
	// wait for itself, because the kernel unmounts what the disk carries before the kernel closes the disk's files.
	d.process.Stderr = os.Stderr
	out, err := d.process.StdoutPipe()
	if err != nil {
		return err
	}
	if d.in, err = d.process.StdinPipe(); err != nil {
		return err
	}
	if err := d.process.Start(); err != nil {
		return err
	}
	said, frozen := make(chan map[string]any, 16), make(chan struct{})
	d.said, d.frozen = said, frozen
	go func() {
		defer close(said)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var line map[string]any
			if json.Unmarshal(lines.Bytes(), &line) != nil {
				continue
			}
			if line["frozen"] == true {
				close(frozen)
				continue
			}
			said <- line
		}
	}()
	if _, err := d.answer(); err != nil { // ready
		return err
	}
	return command("mount", "-t", "ext4", "-o", "loop", d.served, d.target)
}

func (d *disk) say(command string) error {
	_, err := io.WriteString(d.in, command+"\n")
	return err
}

func (d *disk) answer() (map[string]any, error) {
	select {
	case line, ok := <-d.said:
		if !ok {
			return nil, fmt.Errorf("the lossy disk of %s has ended by itself", d.target)
		}
		return line, nil
	case <-time.After(diskPatience):
		return nil, fmt.Errorf("the lossy disk of %s does not answer", d.target)
	}
}

// cut: the power goes. What was not flushed is lost, or kept in parts, as the seed says. Processes that wait for the
// disk get an error.
func (d *disk) cut(seed uint64) error {
	how := fmt.Sprintf("cut %d", seed)
	if d.keepNothing {
		how = "lose"
	}
	if err := d.say(how); err != nil {
		return err
	}
	if _, err := d.answer(); err != nil {
		return err
	}
	_ = d.in.Close()
	err := d.process.Wait()
	d.process = nil
	return err
}

// unmount after the power went; nothing uses the file system any more.
func (d *disk) unmount() error {
	end := time.Now().Add(diskPatience)
	for {
		err := command("umount", d.target)
		if err == nil || strings.Contains(err.Error(), "not mounted") {
			return nil
		}
		if time.Now().After(end) {
			return err
		}
		time.Sleep(breath)
	}
}

// failed returns how many flushes failed.
func (d *disk) failed() (int, error) {
	if err := d.say("failed"); err != nil {
		return 0, err
	}
	line, err := d.answer()
	count, _ := line["failed"].(float64)
	return int(count), err
}

// end ends the disk; the image stays as the last cut left it. Processes that wait for the disk get an error.
func (d *disk) end() {
	if d.process != nil {
		_ = d.in.Close()
		_ = d.process.Wait()
		d.process = nil
	}
}

// discard removes the mounts of a disk that has ended.
func (d *disk) discard() {
	_ = d.unmount()
	_ = syscall.Unmount(d.served, syscall.MNT_DETACH)
}
