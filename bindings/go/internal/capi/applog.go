package capi

// #include "shim.h"
import "C"

import (
	"sync"
	"unsafe"
)

func applogOptions(flags, whenFull uint32, size, maxSize uint64) C.memlith_applog_options {
	options := C.memlith_applog_options{
		flags: C.uint32_t(flags), when_full: C.uint32_t(whenFull), size: C.uint64_t(size),
		max_size: C.uint64_t(maxSize),
	}
	options.struct_size = C.uint64_t(unsafe.Sizeof(options))
	return options
}

func ApplogOpen(store Handle, name string, flags, whenFull uint32, size, maxSize uint64) (log Handle,
	failed *Failure) {
	with(name, func(plain *C.char) {
		options := applogOptions(flags, whenFull, size, maxSize)
		var opened *C.memlith_applog
		failed = check(func() C.int32_t { return C.memlith_applog_open(storeOf(store), plain, &options, &opened) })
		log = Handle(unsafe.Pointer(opened))
	})
	return
}

func ApplogOpenShared(store, name string, flags, whenFull uint32, size, maxSize uint64, program string) (log Handle,
	failed *Failure) {
	with(store, func(folder *C.char) {
		with(name, func(plain *C.char) {
			with(program, func(path *C.char) {
				options := applogOptions(flags, whenFull, size, maxSize)
				if program != "" {
					options.program = path
				}
				var opened *C.memlith_applog
				failed = check(func() C.int32_t {
					return C.memlith_applog_open_shared(folder, plain, &options, &opened)
				})
				log = Handle(unsafe.Pointer(opened))
			})
		})
	})
	return
}

func ApplogWait(log Handle, ticket uint64) *Failure {
	return check(func() C.int32_t { return C.memlith_applog_wait(logOf(log), C.uint64_t(ticket)) })
}

func ApplogClose(log Handle) *Failure {
	return check(func() C.int32_t { return C.memlith_applog_close(logOf(log)) })
}

// Entries, one behind the other, because memory that is passed must not have pointers to Go's memory.
type flat struct {
	bytes []byte
	sizes []C.uint64_t
}

const keptBytes = 1 << 20 // a larger buffer is not kept

var flats = sync.Pool{New: func() any { return new(flat) }}

func flatten(entries [][]byte) *flat {
	all := flats.Get().(*flat)
	all.bytes, all.sizes = all.bytes[:0], all.sizes[:0]
	for _, entry := range entries {
		all.bytes = append(all.bytes, entry...)
		all.sizes = append(all.sizes, C.uint64_t(len(entry)))
	}
	return all
}

func (all *flat) free() {
	if cap(all.bytes) <= keptBytes {
		flats.Put(all)
	}
}

func (all *flat) first() *C.uint64_t {
	if len(all.sizes) == 0 {
		return nil
	}
	return &all.sizes[0]
}

// ApplogAppend appends the entries, and writes them if `write`. A number is returned as soon as they were appended.
func ApplogAppend(log Handle, entries [][]byte, write bool) (uint64, *Failure) {
	all := flatten(entries)
	defer all.free()
	return numberOf(C.mgo_applog_append(C.uintptr_t(log), data(all.bytes), all.first(),
		C.uint64_t(len(entries)), flag(write)))
}

func TxAppend(tx, log Handle, entries [][]byte) *Failure {
	all := flatten(entries)
	defer all.free()
	return of(C.mgo_tx_append(C.uintptr_t(tx), C.uintptr_t(log), data(all.bytes), all.first(),
		C.uint64_t(len(entries))))
}

func TxConsume(tx, log Handle, number uint64) *Failure {
	return check(func() C.int32_t { return C.memlith_txn_consume(txOf(tx), logOf(log), C.uint64_t(number)) })
}

func ApplogWrite(log Handle) *Failure {
	return check(func() C.int32_t { return C.memlith_applog_write(logOf(log), CommitSync, nil) })
}

func ApplogWriteWeak(log Handle) (uint64, *Failure) {
	var ticket C.uint64_t
	failed := check(func() C.int32_t { return C.memlith_applog_write(logOf(log), CommitWeak, &ticket) })
	return uint64(ticket), failed
}

func ApplogDurable(log Handle) uint64 { return uint64(C.memlith_applog_durable(logOf(log))) }

// ApplogRead copies the next entry.
func ApplogRead(log Handle, waitMs uint64) (number uint64, content []byte, failed *Failure) {
	record := C.mgo_applog_read(C.uintptr_t(log), C.uint64_t(waitMs))
	if record.code != 0 {
		return 0, nil, failure(record.code, record.text)
	}
	return uint64(record.number), appendTo(make([]byte, 0, int(record.value.size)), record.value), nil
}

// ApplogGet copies an entry into the buffer, which is made larger if need be.
func ApplogGet(log Handle, number uint64, buffer []byte) ([]byte, *Failure) {
	buffer = buffer[:cap(buffer)]
	for {
		bytes, failed := numberOf(C.mgo_applog_get(C.uintptr_t(log), C.uint64_t(number), data(buffer), size(buffer)))
		if failed != nil {
			return buffer[:0], failed
		}
		if bytes <= uint64(len(buffer)) {
			return buffer[:bytes], nil
		}
		buffer = make([]byte, bytes)
	}
}

func ApplogRewind(log Handle) *Failure {
	return check(func() C.int32_t { return C.memlith_applog_rewind(logOf(log)) })
}

func ApplogConsume(log Handle, number uint64) *Failure {
	return check(func() C.int32_t { return C.memlith_applog_consume(logOf(log), C.uint64_t(number)) })
}

func ApplogTruncateAfter(log Handle, last uint64) *Failure {
	return check(func() C.int32_t { return C.memlith_applog_truncate_after(logOf(log), C.uint64_t(last)) })
}

func ApplogTruncateBefore(log Handle, first uint64) *Failure {
	return check(func() C.int32_t { return C.memlith_applog_truncate_before(logOf(log), C.uint64_t(first)) })
}

func ApplogRestart(log Handle, next uint64) *Failure {
	return check(func() C.int32_t { return C.memlith_applog_restart(logOf(log), C.uint64_t(next)) })
}

// ApplogReport is memlith_applog_info.
type ApplogReport struct {
	Size, Room, Newest, Durable, Read, Consumed uint64
}

func ApplogInfo(log Handle) (ApplogReport, *Failure) {
	var info C.memlith_applog_info
	info.struct_size = C.uint64_t(unsafe.Sizeof(info))
	failed := check(func() C.int32_t { return C.memlith_applog_get_info(logOf(log), &info) })
	return ApplogReport{
		Size: uint64(info.size), Room: uint64(info.room), Newest: uint64(info.newest), Durable: uint64(info.durable),
		Read: uint64(info.read), Consumed: uint64(info.consumed),
	}, failed
}
