package memlith

import (
	"errors"
	"fmt"
	"io/fs"

	"memlith.org/memlith/internal/capi"
)

// Category is the kind of a failure; memlith.h says what a program may do after each. Ask with
// errors.Is(err, memlith.ErrFull).
type Category uint32

const (
	ErrInvalid      Category = capi.Invalid // the call was wrong, or came at a wrong time; nothing changed
	ErrNotFound     Category = capi.NotFound
	ErrExists       Category = capi.Exists
	ErrBusy         Category = capi.Busy // another process or handle uses the object
	ErrIO           Category = capi.Io   // after a failed write or flush the store is poisoned
	ErrCorrupt      Category = capi.Corrupt
	ErrIncompatible Category = capi.Incompatible // another format version, or another structure
	ErrFull         Category = capi.Full         // more than the log may hold
	ErrNoSpace      Category = capi.NoSpace      // the file system is full
	ErrPoisoned     Category = capi.Poisoned     // an earlier write or flush failed: reopen the store
	ErrPermission   Category = capi.Permission
	ErrReadOnly     Category = capi.ReadOnly
	ErrAddressTaken Category = capi.AddressTaken
	ErrUnsupported  Category = capi.Unsupported
	ErrNoMemory     Category = capi.NoMemory
	ErrTooManyFiles Category = capi.TooManyFiles
	ErrConflict     Category = capi.Conflict // another transaction had a lock: begin anew
)

// Error is a short name, such as "log full".
func (c Category) Error() string { return "memlith: " + capi.CategoryName(uint32(c)) }

// ErrClosed is the error of a call on an object that was closed, or on a transaction that has ended. Its category is
// ErrInvalid.
var ErrClosed = fs.ErrClosed

// Error is what a call of this module returns as its error.
type Error struct {
	code    int32
	message string
	closed  bool
}

// Category is the kind of the failure.
func (e *Error) Category() Category { return Category(capi.Category(e.code)) }

// Detail says what the failure concerns, as memlith.h has it.
func (e *Error) Detail() uint32 { return capi.Detail(e.code) }

// Code is category and detail.
func (e *Error) Code() int32 { return e.code }

// Error is the library's sentence: what was found, and what to do.
func (e *Error) Error() string { return "memlith: " + e.message }

// Is compares categories, and knows those that io/fs has, too.
func (e *Error) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return e.Category() == ErrNotFound
	case fs.ErrExist:
		return e.Category() == ErrExists
	case fs.ErrPermission:
		return e.Category() == ErrPermission
	case ErrClosed:
		return e.closed
	}
	category, ok := target.(Category)
	return ok && category == e.Category()
}

// Is is errors.Is, for those who import no other errors.
func Is(err, target error) bool { return errors.Is(err, target) }

// NotFound is the error of the failures that are expected often, which are not made anew each time.
var notFound = &Error{code: capi.NotFound, message: "not found"}

func errorOf(failed *capi.Failure) error {
	switch {
	case failed == nil:
		return nil
	case failed.Text == "" && capi.Category(failed.Code) == capi.NotFound:
		return notFound
	}
	return &Error{code: failed.Code, message: failed.Text, closed: failed.Closed}
}

// ErrorOf is for the packages of this module.
func ErrorOf(failed *capi.Failure) error { return errorOf(failed) }

func busy(format string, arguments ...any) *capi.Failure {
	return &capi.Failure{Code: capi.Busy, Text: fmt.Sprintf(format, arguments...)}
}

// IsStillOpen tells whether a close that failed so has closed nothing, and can be tried again.
func IsStillOpen(err error) bool {
	var failed *Error
	return errors.As(err, &failed) && capi.StillOpen(&capi.Failure{Code: failed.code})
}
