package main

import (
	"math/rand"
	"time"

	"memlith.org/memlith/raftstore/internal/nodes"
)

// weather brings faults. After each of them, every node runs, and reaches the others.
type weather struct {
	*nodes.Cluster
	history *history
	random  *rand.Rand
}

type fault func(w *weather) error

var everyFault = []fault{allKilled, allKilled, oneKilled, onePaused, oneCut, oneHeld, twoCut, twoReturn}

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
