// Package capi calls memlith's C library. The packages memlith, kv, applog and region are its only users.
//
// Pointers to Go's memory are passed for the time of a call only, and lead to bytes or numbers, never to pointers.
// Memory of the library that a call returns is copied before the next call.
package capi

// #cgo CFLAGS: -I${SRCDIR}/../../../../include -O2
// #cgo LDFLAGS: -L${SRCDIR}/../../../../build/release/lib -Wl,-rpath,${SRCDIR}/../../../../build/release/lib -lmemlith
// #include "shim.h"
import "C"

import (
	"runtime"
	"unsafe"
)

//go:generate go run ../gen ../../../../include constants.go

// Handle is an object of the library.
type Handle uintptr

// Failure is what a call that failed says.
type Failure struct {
	Code   int32
	Text   string
	Closed bool // the object had ended
}

// Category returns the lowest byte of a code.
func Category(code int32) uint32 { return uint32(code) & 0xff }

// Detail returns what a code concerns.
func Detail(code int32) uint32 { return uint32(code) >> 8 & 0xff }

// CategoryName returns a short name, such as "log full".
func CategoryName(category uint32) string {
	return C.GoString(C.memlith_category_name(C.int32_t(category)))
}

// Version returns the version of the library.
func Version() string { return C.GoString(C.memlith_version()) }

// Expected often, and so without a text of its own.
var notFound = Failure{Code: NotFound}

func failure(code C.int32_t, text *C.char) *Failure {
	if code == 0 {
		return nil
	}
	if text == nil {
		return &notFound
	}
	failed := &Failure{Code: int32(code), Text: C.GoString(text)}
	C.free(unsafe.Pointer(text))
	return failed
}

// check makes a call, and asks on the same thread for the message of a failure.
func check(call func() C.int32_t) *Failure {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	code := call()
	if code == 0 {
		return nil
	}
	return failure(code, C.mgo_any_text(code))
}

// The objects behind handles.
func storeOf(handle Handle) *C.memlith_store { return *(**C.memlith_store)(unsafe.Pointer(&handle)) }
func txOf(handle Handle) *C.memlith_txn      { return *(**C.memlith_txn)(unsafe.Pointer(&handle)) }
func kvOf(handle Handle) *C.memlith_kv       { return *(**C.memlith_kv)(unsafe.Pointer(&handle)) }
func txnOf(handle Handle) *C.memlith_kv_txn  { return *(**C.memlith_kv_txn)(unsafe.Pointer(&handle)) }
func cursorOf(handle Handle) *C.memlith_kv_cursor {
	return *(**C.memlith_kv_cursor)(unsafe.Pointer(&handle))
}
func logOf(handle Handle) *C.memlith_applog { return *(**C.memlith_applog)(unsafe.Pointer(&handle)) }

func of(result C.mgo_result) *Failure { return failure(result.code, result.text) }

func handleOf(result C.mgo_result) (Handle, *Failure) {
	failed := of(result)
	return Handle(result.handle), failed
}

func numberOf(result C.mgo_result) (uint64, *Failure) {
	number := uint64(result.number)
	return number, of(result)
}

func data(bytes []byte) *C.char {
	if len(bytes) == 0 {
		return nil
	}
	return (*C.char)(unsafe.Pointer(&bytes[0]))
}

func size(bytes []byte) C.uint64_t { return C.uint64_t(len(bytes)) }

func flag(set bool) C.int {
	if set {
		return 1
	}
	return 0
}

// with passes a string that ends with a zero.
func with(text string, call func(*C.char)) {
	plain := C.CString(text)
	defer C.free(unsafe.Pointer(plain))
	call(plain)
}

// appendTo copies memory of the library. The result is never nil: an empty value is a value.
func appendTo(to []byte, from C.memlith_bytes) []byte {
	if from.size == 0 {
		if to == nil {
			return []byte{}
		}
		return to
	}
	return append(to, unsafe.Slice((*byte)(from.data), int(from.size))...)
}

// ---- stores --------------------------------------------------------------------------------------------------------

// StoreOptions are those of memlith_store_options.
type StoreOptions struct {
	Flags          uint32
	OneFile        bool
	LogBytes       uint64
	LogMaxBytes    uint64
	WindowMs       uint64
	WindowBytes    uint64
	MemoryMaxBytes uint64
	OpenWaitMs     uint64
}

func StoreOpen(path string, options StoreOptions) (handle Handle, failed *Failure) {
	with(path, func(plain *C.char) {
		plainOptions := C.memlith_store_options{
			flags: C.uint32_t(options.Flags), log_bytes: C.uint64_t(options.LogBytes),
			log_max_bytes: C.uint64_t(options.LogMaxBytes), window_ms: C.uint64_t(options.WindowMs),
			window_bytes: C.uint64_t(options.WindowBytes), memory_max_bytes: C.uint64_t(options.MemoryMaxBytes),
			open_wait_ms: C.uint64_t(options.OpenWaitMs),
		}
		plainOptions.struct_size = C.uint64_t(unsafe.Sizeof(plainOptions))
		var store *C.memlith_store
		failed = check(func() C.int32_t {
			if options.OneFile {
				return C.memlith_file_open(plain, &plainOptions, &store)
			}
			return C.memlith_store_open(plain, &plainOptions, &store)
		})
		handle = Handle(unsafe.Pointer(store))
	})
	return
}

func StoreClose(store Handle) *Failure {
	return check(func() C.int32_t { return C.memlith_store_close(storeOf(store)) })
}

func StoreCheckpoint(store Handle) *Failure {
	return check(func() C.int32_t { return C.memlith_store_checkpoint(storeOf(store)) })
}

func RegionRemove(store Handle, name string) (failed *Failure) {
	with(name, func(plain *C.char) {
		failed = check(func() C.int32_t { return C.memlith_region_remove(storeOf(store), plain) })
	})
	return
}

// RegionAt returns the name of region number index.
func RegionAt(store Handle, index uint64) (string, *Failure) {
	var info C.memlith_region_info
	info.struct_size = C.uint64_t(unsafe.Sizeof(info))
	failed := check(func() C.int32_t {
		return C.memlith_store_region_at(storeOf(store), C.uint64_t(index), &info)
	})
	if failed != nil {
		return "", failed
	}
	return C.GoString(&info.name[0]), nil
}

// Refresh moves a store that follows on, and returns the ticket of the commit that it shows.
func Refresh(store Handle) (uint64, *Failure) {
	var ticket C.uint64_t
	failed := check(func() C.int32_t { return C.memlith_store_refresh(storeOf(store), &ticket) })
	return uint64(ticket), failed
}

func Begin(store Handle) (Handle, *Failure) {
	var tx *C.memlith_txn
	failed := check(func() C.int32_t { return C.memlith_begin(storeOf(store), &tx) })
	return Handle(unsafe.Pointer(tx)), failed
}

func Commit(tx Handle, mode uint32) (uint64, *Failure) {
	var ticket C.uint64_t
	failed := check(func() C.int32_t { return C.memlith_commit(txOf(tx), C.uint32_t(mode), &ticket) })
	return uint64(ticket), failed
}

func Abort(tx Handle) *Failure { return check(func() C.int32_t { return C.memlith_abort(txOf(tx)) }) }

func Wait(store Handle, ticket uint64) *Failure {
	return check(func() C.int32_t { return C.memlith_wait(storeOf(store), C.uint64_t(ticket)) })
}

func Newest(store Handle) uint64 { return uint64(C.memlith_store_newest(storeOf(store))) }

func Durable(store Handle) uint64 { return uint64(C.memlith_store_durable(storeOf(store))) }

// StoreReport is a selection of memlith_store_info.
type StoreReport struct {
	Regions, LogBytes, LogUsedBytes, DurableLsn, Frames, Batches, LoggedBytes, Checkpoints, HomeBytes uint64
	ReplayedFrames, ReplayedBytes, Incarnation                                                        uint64
	ReadOnly, Poisoned, WasClean                                                                      bool
}

func StoreInfo(store Handle) (StoreReport, *Failure) {
	var info C.memlith_store_info
	info.struct_size = C.uint64_t(unsafe.Sizeof(info))
	failed := check(func() C.int32_t { return C.memlith_store_get_info(storeOf(store), &info) })
	return StoreReport{
		Regions: uint64(info.region_count), LogBytes: uint64(info.log_bytes), LogUsedBytes: uint64(info.log_used_bytes),
		DurableLsn: uint64(info.durable_lsn), Frames: uint64(info.frames), Batches: uint64(info.batches),
		LoggedBytes: uint64(info.logged_bytes), Checkpoints: uint64(info.checkpoints), HomeBytes: uint64(info.home_bytes),
		ReplayedFrames: uint64(info.replayed_frames), ReplayedBytes: uint64(info.replayed_bytes),
		Incarnation: uint64(info.incarnation), ReadOnly: info.read_only != 0, Poisoned: info.poisoned != 0,
		WasClean: info.was_clean != 0,
	}, failed
}
