package capi

import (
	"sync"
	"sync/atomic"
	"time"
)

// Object is an open object of the library. No call reaches the library after the end of the object: the call fails and
// says so. The end waits for calls of other goroutines.
type Object struct {
	name    string // for messages, such as "the transaction"
	lock    sync.RWMutex
	handle  Handle
	closing atomic.Bool
}

// The longest time for which Close waits for calls under way, such as a Wait that its context left behind.
var closingWait = 5 * time.Second

// Open takes a handle that the library returned. An object is opened once, before other goroutines have it.
func (o *Object) Open(name string, handle Handle) { o.name, o.handle = name, handle }

// Name is for messages.
func (o *Object) Name() string { return o.name }

// Closed is the failure of a call that comes after the end of an object.
func Closed(name string) *Failure {
	return &Failure{Code: Invalid, Text: name + " has ended or was closed before", Closed: true}
}

// Call makes a call beside those of other goroutines.
func (o *Object) Call(call func(Handle) *Failure) *Failure {
	o.lock.RLock()
	defer o.lock.RUnlock()
	if o.handle == 0 || o.closing.Load() {
		return Closed(o.name)
	}
	return call(o.handle)
}

// Number is Call of what cannot fail; 0 after the end of the object.
func (o *Object) Number(call func(Handle) uint64) (number uint64) {
	o.Call(func(handle Handle) *Failure {
		number = call(handle)
		return nil
	})
	return number
}

// Alone makes a call while no other goroutine makes one.
func (o *Object) Alone(call func(Handle) *Failure) *Failure {
	return o.Finish(func(handle Handle) (*Failure, bool) { return call(handle), false })
}

// Finish is Alone with a call that tells whether the object has ended.
func (o *Object) Finish(call func(Handle) (failed *Failure, ended bool)) *Failure {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.finish(call)
}

func (o *Object) finish(call func(Handle) (*Failure, bool)) *Failure {
	if o.handle == 0 {
		return Closed(o.name)
	}
	failed, ended := call(o.handle)
	if ended {
		o.handle = 0
	}
	return failed
}

// Close is Finish for objects whose calls may block without end: it waits for a while, and is Busy then. New calls fail
// meanwhile. Closing a closed object does nothing.
func (o *Object) Close(call func(Handle) (failed *Failure, ended bool)) *Failure {
	o.closing.Store(true)
	for begin := time.Now(); !o.lock.TryLock(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > closingWait {
			o.closing.Store(false)
			return &Failure{Code: Busy, Text: o.name + " is in use by another goroutine: let its call return, then close"}
		}
	}
	defer o.lock.Unlock()
	defer o.closing.Store(false)
	if o.handle == 0 {
		return nil
	}
	return o.finish(call)
}

// Hold keeps calls away from objects until `release`; the name of the first that is in a call, if there is one.
func Hold(objects []*Object) (release func(), inUse string) {
	held := 0
	release = func() {
		for _, object := range objects[:held] {
			object.lock.Unlock()
		}
	}
	for _, object := range objects {
		if !object.lock.TryLock() {
			release()
			return nil, object.name
		}
		held++
	}
	return release, ""
}

// StillOpen tells whether a close with that failure has closed nothing.
func StillOpen(failed *Failure) bool {
	if failed == nil {
		return false
	}
	switch Category(failed.Code) {
	case Busy, NoSpace, Full, NoMemory, TooManyFiles:
		return true
	}
	return false
}
