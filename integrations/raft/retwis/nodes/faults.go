package nodes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Faults below a node: the power, the disk, the clock. One goroutine at a time.

// ---- power and disks -----------------------------------------------------------------------------------------------

// Disks puts the folder of each node on a lossy disk of its own, before the nodes start; `program` is power-disk.
func (c *Cluster) Disks(program string) error {
	for i := range c.disks {
		made, err := newDisk(program, c.folder, slot(i))
		if err != nil {
			return err
		}
		c.disks[i] = made
		if err := made.on(); err != nil {
			return err
		}
	}
	return nil
}

// PowerCut takes the power from nodes, all at once: their processes end, and of what was not flushed their disks keep
// what the seeds say. PowerOn follows.
func (c *Cluster) PowerCut(seed func() uint64, victims ...int) (err error) {
	for _, i := range victims {
		if c.process[i] != nil {
			// A process that waits for its disk ends when the disk has gone, and does nothing any more before that.
			_ = c.process[i].Process.Signal(syscall.SIGKILL)
		}
	}
	for _, i := range victims {
		err = errors.Join(err, c.disks[i].cut(seed()))
	}
	for _, i := range victims {
		if c.process[i] != nil {
			err = errors.Join(err, c.wait(i))
		}
	}
	return err
}

// KeepNothing makes power cuts lose everything that was not flushed.
func (c *Cluster) KeepNothing() {
	for _, each := range c.disks {
		each.keepNothing = true
	}
}

// PowerOn mounts the disks again; nodes are started separately.
func (c *Cluster) PowerOn(victims ...int) error {
	for _, i := range victims {
		if err := c.disks[i].unmount(); err != nil {
			return err
		}
		if err := c.disks[i].on(); err != nil {
			return err
		}
	}
	return nil
}

// Arm stops a node's disk at its n-th write or flush from now on, as a power cut does that comes then.
func (c *Cluster) Arm(i int, operations int) error {
	return c.disks[i].say(fmt.Sprint("arm ", operations))
}

// AwaitFrozen returns true when a disk stands still, because it was armed, and false after the time.
func (c *Cluster) AwaitFrozen(within time.Duration) bool {
	timer := time.After(within)
	select {
	case <-c.disks[0].frozen:
	case <-c.disks[1].frozen:
	case <-c.disks[2].frozen:
	case <-timer:
		return false
	}
	return true
}

// Slow makes each write and each flush of a node's disk take so long; 0 and 0: no longer than they take.
func (c *Cluster) Slow(i int, least, most time.Duration) error {
	return c.disks[i].say(fmt.Sprintf("slow %d %d", least.Milliseconds(), most.Milliseconds()))
}

// FailFlushes lets so many flushes of a node's disk fail from now on.
func (c *Cluster) FailFlushes(i int, count int) error {
	return c.disks[i].say(fmt.Sprint("fail ", count))
}

// FailedFlushes returns how many did.
func (c *Cluster) FailedFlushes(i int) (int, error) { return c.disks[i].failed() }

// Drop kills a node that may have ended by itself, and takes the power from its disk.
func (c *Cluster) Drop(i int, seed uint64) error {
	if c.process[i] != nil {
		_ = c.process[i].Process.Kill()
	}
	if err := c.disks[i].cut(seed); err != nil {
		return err
	}
	if c.process[i] != nil {
		_ = c.process[i].Wait()
		c.process[i] = nil
	}
	return c.disks[i].unmount()
}

// Replace gives a node that was dropped, or killed, an empty disk and a new name: the others remove the old node, and
// add the new one, which gets everything from them. docs/replication.md ("one disk is lost") says the same.
func (c *Cluster) Replace(i int, within time.Duration) error {
	old := c.name(i)
	if c.disks[i] == nil {
		if err := os.RemoveAll(c.storeOf(i)); err != nil {
			return err
		}
	} else {
		if err := c.disks[i].format(); err != nil {
			return err
		}
		if err := c.disks[i].on(); err != nil {
			return err
		}
	}
	c.replaced[i]++
	if err := c.change(http.MethodDelete, old, "", within); err != nil {
		return err
	}
	if err := c.start(i, "-join"); err != nil {
		return err
	}
	return c.change(http.MethodPut, c.name(i), c.raft[i], within)
}

// change sends a change of the group to the nodes, until one of them has done it.
func (c *Cluster) change(method, name, body string, within time.Duration) (err error) {
	web := &http.Client{Timeout: within}
	defer web.CloseIdleConnections()
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(breath) {
		for _, address := range c.HTTP {
			var request *http.Request
			request, err = http.NewRequest(method, "http://"+address+"/servers/"+name, strings.NewReader(body))
			if err != nil {
				return err
			}
			var response *http.Response
			if response, err = web.Do(request); err != nil {
				continue
			}
			said, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("%s: %s", response.Status, said)
		}
	}
	return fmt.Errorf("%s %s: %w", method, name, err)
}

// State of a node, as the node says.
type State struct {
	Role                 string
	First, Last, Applied uint64 // indexes of its log, and of the newest entry that its state has
}

// Stored returns the newest index of a node's log, and false for a node that does not answer.
func (c *Cluster) Stored(i int) (uint64, bool) {
	state, ok := c.State(i)
	return state.Last, ok
}

// Find returns a node of that role, Leader or Follower, as soon as there is one.
func (c *Cluster) Find(role string, within time.Duration) (int, error) {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(breath) {
		for i := range c.HTTP {
			if state, ok := c.State(i); ok && state.Role == role {
				return i, nil
			}
		}
	}
	return 0, fmt.Errorf("no node is a %s", role)
}

// State returns false for a node that does not answer. Of kvnode only.
func (c *Cluster) State(i int) (state State, ok bool) {
	web := &http.Client{Timeout: time.Second}
	defer web.CloseIdleConnections()
	response, err := web.Get("http://" + c.HTTP[i] + "/status")
	if err != nil {
		return state, false
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	_, err2 := fmt.Sscanf(string(said), "%s log %d-%d applied %d", &state.Role, &state.First, &state.Last, &state.Applied)
	return state, err == nil && err2 == nil
}

// ---- clocks --------------------------------------------------------------------------------------------------------

// Clocks gives each node a clock of its own, before the nodes start. The nodes were built with the tag clockjumps.
func (c *Cluster) Clocks() error {
	for i := range c.clocks {
		file, err := os.Create(filepath.Join(c.folder, slot(i)+".clock"))
		if err != nil {
			return err
		}
		c.clocks[i] = file
		if err := c.SetClock(i, 0); err != nil {
			return err
		}
	}
	return nil
}

// SetClock sets a node's clock, as people set it, to so much before or behind this machine's, also while it is off.
func (c *Cluster) SetClock(i int, jump time.Duration) error {
	var bytes [8]byte
	binary.LittleEndian.PutUint64(bytes[:], uint64(jump))
	_, err := c.clocks[i].WriteAt(bytes[:], 0)
	return err
}

// ClockError returns by how much a node's clock differs from one that is so much before this machine's, as the date of
// the node's answer says, to a second; false: there is no answer.
func (c *Cluster) ClockError(i int, jump time.Duration) (time.Duration, bool) {
	web := &http.Client{Timeout: time.Second}
	defer web.CloseIdleConnections()
	response, err := web.Get("http://" + c.HTTP[i] + "/status")
	if err != nil {
		return 0, false
	}
	_ = response.Body.Close()
	date, err := http.ParseTime(response.Header.Get("Date"))
	off := date.Sub(time.Now().Add(jump))
	if off < 0 {
		off = -off
	}
	return off, err == nil
}
