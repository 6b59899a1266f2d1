package capi

import (
	"testing"
	"time"
)

func TestCloseIsBusyWhileACallDoesNotReturn(t *testing.T) {
	defer func(wait time.Duration) { closingWait = wait }(closingWait)
	closingWait = 10 * time.Millisecond
	var object Object
	object.Open("the object", 1)
	inside, leave, left := make(chan struct{}), make(chan struct{}), make(chan *Failure)
	go func() {
		left <- object.Call(func(Handle) *Failure {
			close(inside)
			<-leave
			return nil
		})
	}()
	<-inside
	ends := 0
	end := func(Handle) (*Failure, bool) {
		ends++
		return nil, true
	}
	if failed := object.Close(end); !StillOpen(failed) || ends != 0 {
		t.Fatal("closed beside a call: ", failed, ends)
	}
	if failed := object.Call(func(Handle) *Failure { return nil }); failed != nil {
		t.Fatal("a close that was busy has closed: ", failed)
	}
	if release, inUse := Hold([]*Object{new(Object), &object}); release != nil || inUse != "the object" {
		t.Fatal("held beside a call: ", inUse)
	}
	closingWait = time.Minute
	time.AfterFunc(5*time.Millisecond, func() { close(leave) })
	if failed := object.Close(end); failed != nil || ends != 1 {
		t.Fatal(failed, ends)
	}
	if failed := <-left; failed != nil {
		t.Fatal(failed)
	}
	if failed := object.Close(end); failed != nil || ends != 1 {
		t.Fatal("closed twice: ", failed, ends)
	}
	if failed := object.Call(func(Handle) *Failure { return nil }); failed == nil || !failed.Closed {
		t.Fatal(failed)
	}
}
