package main

import (
	"fmt"
	"math/rand"
	"time"

	"memlith.org/memlith/retwis/nodes"
)

// weather brings faults. After each of them, every node runs, and reaches the others.
type weather struct {
	*nodes.Cluster
	history *history
	random  *rand.Rand
	counts  *counts
}

type fault func(w *weather) error

var faultsOfOpenraft = []fault{allKilled, allKilled, oneKilled, onePaused, oneCut, oneHeld, twoCut, twoReturn}

var faultsOfEtcd = []fault{allKilled, allKilled, oneKilled, onePaused, twoReturn}

// While one node is away, the others give up to so many answers: it may need the state of one of them then, because
// the logs of these nodes are short.
const awayAnswers = 150

func (w *weather) kill(victims ...int) error {
	for _, victim := range victims {
		if err := w.Kill(victim); err != nil {
			return err
		}
		time.Sleep(time.Duration(w.random.Intn(4000)) * time.Microsecond)
	}
	return nil
}

// aWhile is shorter or longer than the time after which nodes elect another leader.
func (w *weather) aWhile() { time.Sleep(time.Duration(50+w.random.Intn(950)) * time.Millisecond) }

func (w *weather) anyNode() int { return w.random.Intn(nodes.Count) }

// All nodes are killed, and come back.
func allKilled(w *weather) error {
	if err := w.kill(w.random.Perm(nodes.Count)...); err != nil {
		return err
	}
	return w.StartAll()
}

// One is killed; the others go on; it comes back.
func oneKilled(w *weather) error {
	if err := w.kill(w.anyNode()); err != nil {
		return err
	}
	if err := w.history.await(w.random.Intn(awayAnswers)); err != nil {
		return err
	}
	return w.StartAll()
}

// All are killed, two come back and go on; these are killed, and the third comes back with one of them, which alone
// knows what the two did; and then the last.
func twoReturn(w *weather) error {
	order := w.random.Perm(nodes.Count)
	if err := w.kill(order...); err != nil {
		return err
	}
	for _, each := range order[:2] {
		if err := w.Start(each); err != nil {
			return err
		}
	}
	if err := w.history.await(1 + w.random.Intn(12)); err != nil {
		return err
	}
	if err := w.kill(order[:2]...); err != nil {
		return err
	}
	for _, each := range order[1:] {
		if err := w.Start(each); err != nil {
			return err
		}
	}
	if err := w.history.await(1 + w.random.Intn(12)); err != nil {
		return err
	}
	return w.StartAll()
}

// One stands still, and goes on.
func onePaused(w *weather) error {
	one := w.anyNode()
	if err := w.Pause(one); err != nil {
		return err
	}
	w.aWhile()
	return w.Continue(one)
}

// One reaches no other node, but clients reach it.
func oneCut(w *weather) error {
	one := w.anyNode()
	w.Cut(one, false)
	w.aWhile()
	w.Heal(one)
	return nil
}

// The same, and what was sent arrives later.
func oneHeld(w *weather) error {
	one := w.anyNode()
	w.Cut(one, true)
	w.aWhile()
	w.Heal(one)
	return nil
}

// Two do not reach each other, but the third reaches both.
func twoCut(w *weather) error {
	order := w.random.Perm(nodes.Count)
	w.CutBetween(order[0], order[1])
	w.aWhile()
	w.Heal(order[0])
	return nil
}

// ---- clocks --------------------------------------------------------------------------------------------------------

// anyJump is between a millisecond and ten years, forwards or backwards.
func anyJump(random *rand.Rand) time.Duration {
	most := int64(time.Millisecond) << (1 + random.Intn(38))
	jump := time.Duration(random.Int63n(most))
	if random.Intn(2) == 0 {
		return -jump
	}
	return jump
}

// The clocks of some nodes are set to other times, once or twice.
func clocksJump(w *weather) error {
	for times := 1 + w.random.Intn(2); times > 0; times-- {
		for _, one := range w.random.Perm(nodes.Count)[:1+w.random.Intn(nodes.Count)] {
			if err := w.jump(one, anyJump(w.random)); err != nil {
				return err
			}
		}
		w.aWhile()
	}
	return nil
}

func (w *weather) jump(one int, jump time.Duration) error {
	w.counts.clockJumps++
	if err := w.SetClock(one, jump); err != nil {
		return err
	}
	if off, ok := w.ClockError(one, jump); ok && off > clockErrorMax {
		return fmt.Errorf("the clock of node %d did not jump: was kvnode built with the tag clockjumps?", one)
	}
	return nil
}

const clockErrorMax = time.Minute // an answer may take its time

// All clocks are set back, and one node reaches no other for a while.
func jumpedAndCut(w *weather) error {
	for one := 0; one < nodes.Count; one++ {
		if err := w.jump(one, -time.Duration(1+w.random.Intn(100))*time.Hour); err != nil {
			return err
		}
	}
	w.aWhile()
	return oneCut(w)
}

// ---- power and disks -----------------------------------------------------------------------------------------------

var faultsWithDisks = []fault{powerOfAll, powerOfAll, powerOfAll, powerOfOne, powerOfTwo, awayAndPowerOfAll, disksSlow,
	diskFails, onePaused, oneCut}

const (
	untilFrozen     = 2 * time.Second
	operationsMax   = 60 // of a disk, until its power goes
	inStartOneIn    = 4
	slowLeast       = 10 * time.Millisecond
	slowMost        = 200 * time.Millisecond
	failsForEver    = 1 << 30
	replacePatience = 60 * time.Second
)

// armed lets the disks of these nodes stop at some operation, waits for the first that does, and a little longer.
func (w *weather) armed(victims []int) error {
	for _, victim := range victims {
		if err := w.Arm(victim, 1+w.random.Intn(operationsMax)); err != nil {
			return err
		}
	}
	if w.AwaitFrozen(untilFrozen) {
		time.Sleep(time.Duration(w.random.Intn(20_000)) * time.Microsecond)
	}
	return nil
}

// cut takes the power from nodes at once, at any moment or in the middle of an operation of a disk, and gives it back;
// in some cases the power goes again while the nodes start. The nodes are not started.
func (w *weather) cut(victims ...int) error {
	if w.random.Intn(2) == 0 {
		if err := w.armed(victims[:1+w.random.Intn(len(victims))]); err != nil {
			return err
		}
	}
	if err := w.cutNow(victims); err != nil {
		return err
	}
	if w.random.Intn(inStartOneIn) > 0 {
		return nil
	}
	for _, victim := range victims {
		if err := w.Start(victim); err != nil {
			return err
		}
	}
	if err := w.armed(victims); err != nil {
		return err
	}
	w.counts.cutInStart++
	return w.cutNow(victims)
}

func (w *weather) cutNow(victims []int) error {
	*[]*int{&w.counts.cutOfOne, &w.counts.cutOfTwo, &w.counts.cutOfAll}[len(victims)-1]++
	if err := w.PowerCut(w.random.Uint64, victims...); err != nil {
		return err
	}
	return w.PowerOn(victims...)
}

// The power of all nodes goes. They come back at once, or two of them first.
func powerOfAll(w *weather) error {
	order := w.random.Perm(nodes.Count)
	if err := w.cut(order...); err != nil {
		return err
	}
	return w.twoFirst(order, w.random.Intn(2) == 0)
}

// twoFirst starts all nodes, and before that, if `first`, lets two of them answer.
func (w *weather) twoFirst(order []int, first bool) error {
	for _, each := range order[:2] {
		if err := w.Start(each); err != nil {
			return err
		}
	}
	if first {
		if err := w.history.await(1 + w.random.Intn(12)); err != nil {
			return err
		}
	}
	return w.StartAll()
}

// One loses its power; the others go on; it comes back.
func powerOfOne(w *weather) error {
	one := w.anyNode()
	if err := w.cut(one); err != nil {
		return err
	}
	if err := w.history.await(w.random.Intn(awayAnswers)); err != nil {
		return err
	}
	return w.StartAll()
}

// Two lose their power, and come back.
func powerOfTwo(w *weather) error {
	if err := w.cut(w.random.Perm(nodes.Count)[:2]...); err != nil {
		return err
	}
	return w.StartAll()
}

// One node reaches no other, and the others go on. Then the power of all goes. The one that was away comes back with
// one of the others, which alone knows what the two did; and then the last.
func awayAndPowerOfAll(w *weather) error {
	order := w.random.Perm(nodes.Count)
	w.Cut(order[0], false)
	if err := w.history.await(1 + w.random.Intn(40)); err != nil {
		return err
	}
	if err := w.cutNow(order); err != nil {
		return err
	}
	w.Heal(order[0])
	return w.twoFirst(order, true)
}

// The disks of one node or of all are slow for a while, in which a node may be killed, or the power of all may go.
func disksSlow(w *weather) error {
	w.counts.slow++
	order := w.random.Perm(nodes.Count)
	for _, each := range order[:1+2*w.random.Intn(2)] {
		most := slowLeast + time.Duration(w.random.Int63n(int64(slowMost-slowLeast)))
		if err := w.Slow(each, slowLeast, most); err != nil {
			return err
		}
	}
	w.aWhile()
	w.aWhile()
	switch w.random.Intn(3) {
	case 0:
		if err := w.kill(order[0]); err != nil {
			return err
		}
	case 1:
		if err := w.cutNow(order); err != nil {
			return err
		}
	default:
		if err := w.history.await(w.random.Intn(5)); err != nil {
			return err
		}
	}
	for _, each := range order {
		if err := w.Slow(each, 0, 0); err != nil {
			return err
		}
	}
	return w.StartAll()
}

// A flush of one node's disk fails, or all from then on. The node stores nothing more, also if later flushes would do;
// the others go on. Then the node is ended: it is started again on what its disk has, or, if the disk is lost, replaced
// by a new one under a new name, and the group relies on the new one.
func diskFails(w *weather) error {
	w.counts.failed++
	order := w.random.Perm(nodes.Count)
	one, lost := order[0], w.random.Intn(2) == 0
	failures := failsForEver
	if !lost && w.random.Intn(2) == 0 {
		failures = 1
	}
	if err := w.FailFlushes(one, failures); err != nil {
		return err
	}
	for failed := 0; failed == 0; {
		if err := w.history.await(1); err != nil {
			return err
		}
		var err error
		if failed, err = w.FailedFlushes(one); err != nil {
			return err
		}
	}
	if err := w.history.await(5); err != nil {
		return err
	}
	before, _ := w.Stored(one)
	if err := w.history.await(2 * *clients); err != nil {
		return err
	}
	if after, alive := w.Stored(one); alive && after != before {
		return fmt.Errorf("node %d stored entries %d to %d after a flush of its disk had failed", one, before+1, after)
	}
	if err := w.Drop(one, w.random.Uint64()); err != nil {
		return err
	}
	if !lost {
		if err := w.PowerOn(one); err != nil {
			return err
		}
		return w.Start(one)
	}
	w.counts.replaced++
	if err := w.Replace(one, replacePatience); err != nil {
		return err
	}
	if err := w.history.await(1); err != nil {
		return err
	}
	if err := w.kill(order[1]); err != nil {
		return err
	}
	if err := w.history.await(1 + w.random.Intn(12)); err != nil {
		return err
	}
	return w.StartAll()
}

// restartWithoutFlushes restarts a node on a memlith that does not flush. Power cuts keep nothing from now on: memlith
// finds most logs that have lost something else than their end, and does not open these.
func (w *weather) restartWithoutFlushes(one int) error {
	w.KeepNothing()
	if err := w.kill(one); err != nil {
		return err
	}
	w.Preload(one, *noFlush)
	return w.Start(one)
}
