package capi

// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"unsafe"
)

// Movements of a cursor.
const (
	First = C.MGO_FIRST
	Last  = C.MGO_LAST
	Next  = C.MGO_NEXT
	Prev  = C.MGO_PREV
	Seek  = C.MGO_SEEK
)

func KvOpen(store Handle, name string, flags uint32, maxSize, windowMs, windowBytes uint64) (kv Handle,
	failed *Failure) {
	with(name, func(plain *C.char) {
		options := C.memlith_kv_options{
			flags: C.uint32_t(flags), max_size: C.uint64_t(maxSize), window_ms: C.uint64_t(windowMs),
			window_bytes: C.uint64_t(windowBytes),
		}
		options.struct_size = C.uint64_t(unsafe.Sizeof(options))
		var opened *C.memlith_kv
		failed = check(func() C.int32_t { return C.memlith_kv_open(storeOf(store), plain, &options, &opened) })
		kv = Handle(unsafe.Pointer(opened))
	})
	return
}

func KvOpenShared(store, name string, flags uint32, maxSize, windowMs, windowBytes uint64, program string) (kv Handle,
	failed *Failure) {
	with(store, func(folder *C.char) {
		with(name, func(plain *C.char) {
			with(program, func(path *C.char) {
				options := C.memlith_kv_options{
					flags: C.uint32_t(flags), max_size: C.uint64_t(maxSize), window_ms: C.uint64_t(windowMs),
					window_bytes: C.uint64_t(windowBytes),
				}
				if program != "" {
					options.program = path
				}
				options.struct_size = C.uint64_t(unsafe.Sizeof(options))
				var opened *C.memlith_kv
				failed = check(func() C.int32_t { return C.memlith_kv_open_shared(folder, plain, &options, &opened) })
				kv = Handle(unsafe.Pointer(opened))
			})
		})
	})
	return
}

func KvWait(kv Handle, ticket uint64) *Failure {
	return check(func() C.int32_t { return C.memlith_kv_wait(kvOf(kv), C.uint64_t(ticket)) })
}

func KvClose(kv Handle) *Failure {
	return check(func() C.int32_t { return C.memlith_kv_close(kvOf(kv)) })
}

func KvMapOpen(kv Handle, name string, flags uint32) (number uint32, failed *Failure) {
	with(name, func(plain *C.char) {
		var found C.memlith_kv_map
		failed = check(func() C.int32_t { return C.memlith_kv_map_open(kvOf(kv), plain, C.uint32_t(flags), &found) })
		number = uint32(found)
	})
	return
}

func KvMapRemove(kv Handle, name string) (failed *Failure) {
	with(name, func(plain *C.char) {
		failed = check(func() C.int32_t { return C.memlith_kv_map_remove(kvOf(kv), plain) })
	})
	return
}

func KvMapAt(kv Handle, index uint64) (string, *Failure) {
	var name [C.MEMLITH_KV_NAME_BYTES_MAX + 1]C.char
	failed := check(func() C.int32_t {
		return C.memlith_kv_map_at(kvOf(kv), C.uint64_t(index), &name[0], C.size_t(len(name)))
	})
	if failed != nil {
		return "", failed
	}
	return C.GoString(&name[0]), nil
}

func KvPersist(kv Handle) *Failure {
	return check(func() C.int32_t { return C.memlith_kv_persist(kvOf(kv)) })
}

func KvDurable(kv Handle) uint64 { return uint64(C.memlith_kv_durable(kvOf(kv))) }

func KvVerify(kv Handle) *Failure {
	return check(func() C.int32_t { return C.memlith_kv_verify(kvOf(kv), nil) })
}

// KvReport is a selection of memlith_kv_info.
type KvReport struct {
	Maps, Records, RegionBytes, PageBytes, Pages, FreePages, Commits, Durable, LoggedBytes, Conflicts uint64
	SnapshotBytes, Transactions                                                                       uint64
}

func KvInfo(kv Handle) (KvReport, *Failure) {
	var info C.memlith_kv_info
	info.struct_size = C.uint64_t(unsafe.Sizeof(info))
	failed := check(func() C.int32_t { return C.memlith_kv_get_info(kvOf(kv), &info) })
	return KvReport{
		Maps: uint64(info.maps), Records: uint64(info.records), RegionBytes: uint64(info.region_bytes),
		PageBytes: uint64(info.page_bytes), Pages: uint64(info.pages), FreePages: uint64(info.free_pages),
		Commits: uint64(info.commits), Durable: uint64(info.durable), LoggedBytes: uint64(info.logged_bytes),
		Conflicts: uint64(info.conflicts), SnapshotBytes: uint64(info.snapshot_bytes),
		Transactions: uint64(info.transactions),
	}, failed
}

func KvBegin(kv Handle, flags uint32, waitMs uint64) (Handle, *Failure) {
	return handleOf(C.mgo_kv_begin(C.uintptr_t(kv), C.uint32_t(flags), C.uint64_t(waitMs)))
}

func KvCommit(txn Handle, durability uint32) (uint64, *Failure) {
	return numberOf(C.mgo_kv_commit(C.uintptr_t(txn), C.uint32_t(durability)))
}

func KvTxnFree(txn Handle) { C.memlith_kv_txn_free(txnOf(txn)) }

func TxAddKv(tx, txn Handle) *Failure {
	return check(func() C.int32_t { return C.memlith_txn_add_kv(txOf(tx), txnOf(txn)) })
}

// KvGet appends the value to a buffer.
func KvGet(txn Handle, number uint32, key, to []byte) ([]byte, *Failure) {
	record := C.mgo_kv_get(C.uintptr_t(txn), C.uint32_t(number), data(key), size(key))
	if record.code != 0 {
		return to, failure(record.code, record.text)
	}
	return appendTo(to, record.value), nil
}

func KvPut(txn Handle, number uint32, key, value []byte) *Failure {
	return of(C.mgo_kv_put(C.uintptr_t(txn), C.uint32_t(number), data(key), size(key), data(value), size(value)))
}

// KvPutMany puts records that AddRecord laid behind each other. The number says how many were put.
func KvPutMany(txn Handle, number uint32, records []byte) (uint64, *Failure) {
	return numberOf(C.mgo_kv_put_many(C.uintptr_t(txn), C.uint32_t(number), data(records), size(records)))
}

func KvRemove(txn Handle, number uint32, key []byte) *Failure {
	return of(C.mgo_kv_remove(C.uintptr_t(txn), C.uint32_t(number), data(key), size(key)))
}

// KvRange copies records with from <= key < to into the buffer, which ParseRecord takes apart. `used` bytes are there
// then; if `needed` is not 0, the next record has so many and had no room. A nil bound is none.
func KvRange(txn Handle, number uint32, from, to, buffer []byte) (used, needed uint64, failed *Failure) {
	result := C.mgo_kv_range(C.uintptr_t(txn), C.uint32_t(number), data(from), size(from), flag(from != nil),
		data(to), size(to), flag(to != nil), data(buffer), size(buffer))
	return uint64(result.used), uint64(result.needed), failure(result.code, result.text)
}

// KvRangeBack is KvRange from the last record of the range down to the first.
func KvRangeBack(txn Handle, number uint32, from, to, buffer []byte) (used, needed uint64, failed *Failure) {
	result := C.mgo_kv_range_back(C.uintptr_t(txn), C.uint32_t(number), data(from), size(from), flag(from != nil),
		data(to), size(to), flag(to != nil), data(buffer), size(buffer))
	return uint64(result.used), uint64(result.needed), failure(result.code, result.text)
}

// KvRemoveRange removes the records with from <= key < to, and returns their number. A nil bound is none.
func KvRemoveRange(txn Handle, number uint32, from, to []byte) (uint64, *Failure) {
	return numberOf(C.mgo_kv_remove_range(C.uintptr_t(txn), C.uint32_t(number), data(from), size(from),
		data(to), size(to), flag(to != nil)))
}

// KvPutIf compares and swaps; nil stands for no record.
func KvPutIf(txn Handle, number uint32, key, expected, value []byte) (bool, *Failure) {
	done, failed := numberOf(C.mgo_kv_put_if(C.uintptr_t(txn), C.uint32_t(number), data(key), size(key),
		data(expected), size(expected), flag(expected != nil), data(value), size(value), flag(value != nil)))
	return done != 0, failed
}

// KvEstimate reckons the records and bytes of a range. A nil bound is none.
func KvEstimate(txn Handle, number uint32, from, to []byte) (records, bytes uint64, failed *Failure) {
	result := C.mgo_kv_estimate(C.uintptr_t(txn), C.uint32_t(number), data(from), size(from), flag(from != nil),
		data(to), size(to), flag(to != nil))
	return uint64(result.records), uint64(result.bytes), failure(result.code, result.text)
}

// KvAppendMany puts records that AddRecord laid behind each other behind all of the map, and returns how many.
func KvAppendMany(kv Handle, number uint32, records []byte) (uint64, *Failure) {
	return numberOf(C.mgo_kv_append_many(C.uintptr_t(kv), C.uint32_t(number), data(records), size(records)))
}

// KvHead returns at most so many of the first bytes of a value, and the size of the value.
func KvHead(txn Handle, number uint32, key []byte, most int) ([]byte, uint64, *Failure) {
	record := C.mgo_kv_get(C.uintptr_t(txn), C.uint32_t(number), data(key), size(key))
	if record.code != 0 {
		return nil, 0, failure(record.code, record.text)
	}
	bytes := uint64(record.value.size)
	if bytes > uint64(most) {
		record.value.size = C.uint64_t(most)
	}
	return appendTo(nil, record.value), bytes, nil
}

// AddRecord lays a record behind others.
func AddRecord(records, key, value []byte) []byte {
	var sizes [8]byte
	binary.LittleEndian.PutUint32(sizes[:4], uint32(len(key)))
	binary.LittleEndian.PutUint32(sizes[4:], uint32(len(value)))
	return append(append(append(records, sizes[:]...), key...), value...)
}

// ParseRecord takes the first record away.
func ParseRecord(records []byte) (key, value, rest []byte) {
	keyEnd := 8 + int(binary.LittleEndian.Uint32(records))
	valueEnd := keyEnd + int(binary.LittleEndian.Uint32(records[4:]))
	return records[8:keyEnd:keyEnd], records[keyEnd:valueEnd:valueEnd], records[valueEnd:]
}

func CursorOpen(txn Handle, number uint32) (Handle, *Failure) {
	return handleOf(C.mgo_cursor_open(C.uintptr_t(txn), C.uint32_t(number)))
}

func CursorClose(cursor Handle) { C.memlith_kv_cursor_close(cursorOf(cursor)) }

// CursorSetBounds restricts a cursor to from <= key < to. A nil bound is none.
func CursorSetBounds(cursor Handle, from, to []byte) *Failure {
	return of(C.mgo_cursor_set_bounds(C.uintptr_t(cursor), data(from), size(from), flag(from != nil),
		data(to), size(to), flag(to != nil)))
}

// CursorSetPrefix restricts a cursor to the keys that begin so.
func CursorSetPrefix(cursor Handle, prefix []byte) *Failure {
	return of(C.mgo_cursor_set_prefix(C.uintptr_t(cursor), data(prefix), size(prefix)))
}

// CursorMove copies the record on which the cursor stands then.
func CursorMove(cursor Handle, how int, target []byte) (key, value []byte, failed *Failure) {
	record := C.mgo_cursor_move(C.uintptr_t(cursor), C.int(how), data(target), size(target))
	if record.code != 0 {
		return nil, nil, failure(record.code, record.text)
	}
	both := make([]byte, 0, int(record.key.size+record.value.size))
	both = appendTo(appendTo(both, record.key), record.value)
	end := int(record.key.size)
	return both[:end:end], both[end:], nil
}

func CursorRemove(cursor Handle) *Failure {
	return check(func() C.int32_t { return C.memlith_kv_cursor_remove(cursorOf(cursor)) })
}
