// Package archive archives a memlith store beside the process that writes to it, restores any state of it, and keeps
// warm standbys. docs/backup.md is the guide; memlith/archive.h states the contract of each call.
package archive

import (
	"context"
	"math"
	"time"

	"memlith.org/memlith"
	"memlith.org/memlith/internal/capi"
)

// Target is where an archive lies: a Folder, which is made if it is missing, or commands of the shell, in which %n
// stands for the name of an object. Put gets the object as its input, Get writes the object to its output, and Remove,
// which may be empty, removes the object.
type Target = capi.Target

// Never is for the times of Options.
const Never time.Duration = math.MaxInt64

// Options of archiving.
type Options struct {
	New     bool // no archive is at the target yet, although no command says so: begin one
	Damaged bool // full copies are made of damaged data, too
	// Wait is how long frames wait to share a segment; 0: 500 ms.
	Wait time.Duration
	// FullEvery is the time between full copies; 0: a day; Never: only where they are needed.
	FullEvery time.Duration
	// Keep is how far back states stay restorable; 0: a week; Never: all.
	Keep time.Duration
	// KeepLogBytes is the size up to which the store's log waits for the archive; 0: it does not.
	KeepLogBytes uint64
}

// Progress is what an archive has: everything before ArchivedLsn.
type Progress = capi.ProgressReport

// Archive archives a store. The calls of several goroutines wait for each other.
type Archive struct{ object capi.Object }

// Open goes on with the archive of the store at that path, or begins one with a full copy.
func Open(store string, target Target, options Options) (*Archive, error) {
	var flags uint32
	if options.New {
		flags |= capi.ArchiveNew
	}
	if options.Damaged {
		flags |= capi.ArchiveDamaged
	}
	handle, failed := capi.ArchiveOpen(store, target, flags, uint64(options.Wait/time.Millisecond),
		seconds(options.FullEvery), seconds(options.Keep), options.KeepLogBytes)
	if failed != nil {
		return nil, memlith.ErrorOf(failed)
	}
	archive := &Archive{}
	archive.object.Open("the archive of "+store, handle)
	return archive, nil
}

func seconds(of time.Duration) uint64 {
	if of == Never {
		return capi.ArchiveNever
	}
	return uint64(of / time.Second)
}

// Step looks at the store once, and archives what is due. To be called several times a second. An error loses nothing:
// the next call tries again.
func (a *Archive) Step() (Progress, error) { return a.look(false) }

// Flush archives what was durable when the call began.
func (a *Archive) Flush() (Progress, error) { return a.look(true) }

func (a *Archive) look(flush bool) (progress Progress, err error) {
	err = memlith.ErrorOf(a.object.Alone(func(archive capi.Handle) (failed *capi.Failure) {
		progress, failed = capi.ArchiveLook(archive, flush)
		return failed
	}))
	return progress, err
}

// Run steps every 200 ms until the context ends, and flushes then. `failed`, which may be nil, gets the errors of
// steps, which lose nothing. Run returns the error of the flush.
func (a *Archive) Run(ctx context.Context, failed func(error)) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			_, err := a.Flush()
			return err
		case <-ticker.C:
			if _, err := a.Step(); err != nil && failed != nil {
				failed(err)
			}
		}
	}
}

// Copy makes a full copy now.
func (a *Archive) Copy() error { return memlith.ErrorOf(a.object.Alone(capi.ArchiveCopy)) }

// Close is Flush, and closes, whatever the error. Closing again does nothing.
func (a *Archive) Close() error {
	return memlith.ErrorOf(a.object.Close(func(archive capi.Handle) (*capi.Failure, bool) {
		return capi.ArchiveClose(archive), true
	}))
}

// Run of an archive is a stretch of the store's history without a gap. It can be restored from BeginLsn to EndLsn.
type Run = capi.RunReport

// Runs returns the runs of an archive, in order.
func Runs(target Target) ([]Run, error) {
	runs, failed := capi.ArchiveList(target)
	return runs, memlith.ErrorOf(failed)
}

// RestoreOptions say which state is restored; the zero value: the latest.
type RestoreOptions struct {
	Lsn  uint64    // every commit whose frame begins before it; so a ticket stands for the state with its commit
	Time time.Time // what the store had by then
	Run  uint64    // in which an LSN or a time is looked for; 0: in all
	// Dry reads and checks everything that is needed, and makes nothing.
	Dry bool
	// AsFarAsCan takes the last complete state before a segment that is missing or damaged.
	AsFarAsCan bool
}

// Restored is what was restored: every commit before Lsn.
type Restored = capi.RestoredReport

// Restore restores a store to dest, which must not exist. It appears whole, as the last step, or not at all.
func Restore(target Target, dest string, options RestoreOptions) (Restored, error) {
	at, value, flags := uint32(capi.AtLatest), uint64(0), uint32(0)
	if options.Lsn != 0 {
		at, value = capi.AtLsn, options.Lsn
	} else if !options.Time.IsZero() {
		at, value = capi.AtTime, uint64(options.Time.UnixNano())
	}
	if options.Dry {
		flags |= capi.RestoreDry
	}
	if options.AsFarAsCan {
		flags |= capi.RestoreAsFarAsCan
	}
	restored, failed := capi.Restore(target, dest, at, flags, value, options.Run)
	return restored, memlith.ErrorOf(failed)
}

// Standby is a store that follows an archive, until Promote makes it one that can be written.
type Standby struct{ object capi.Object }

// OpenStandby makes the standby in the folder dest, or goes on with it.
func OpenStandby(target Target, dest string) (*Standby, error) {
	handle, failed := capi.StandbyOpen(target, dest)
	if failed != nil {
		return nil, memlith.ErrorOf(failed)
	}
	standby := &Standby{}
	standby.object.Open("the standby "+dest, handle)
	return standby, nil
}

// Step adds what the archive has by now, and returns the LSN up to which the standby has everything. To be called about
// once a second.
func (s *Standby) Step() (lsn uint64, err error) {
	err = memlith.ErrorOf(s.object.Alone(func(standby capi.Handle) (failed *capi.Failure) {
		lsn, failed = capi.StandbyStep(standby)
		return failed
	}))
	return lsn, err
}

// Close leaves the standby as it is. Closing again does nothing.
func (s *Standby) Close() error {
	return memlith.ErrorOf(s.object.Close(func(standby capi.Handle) (*capi.Failure, bool) {
		return capi.StandbyClose(standby), true
	}))
}

// Promote makes a standby that no Standby keeps up to date any more a store that can be written. The path is the
// store's.
func Promote(path string) error { return memlith.ErrorOf(capi.Promote(path)) }
