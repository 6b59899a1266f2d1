package capi

// #include "shim.h"
import "C"

import "unsafe"

func regionOf(handle Handle) *C.memlith_region { return *(**C.memlith_region)(unsafe.Pointer(&handle)) }

func RegionOpen(store Handle, name string, flags, tracker uint32, size, maxSize uint64) (region Handle,
	failed *Failure) {
	with(name, func(plain *C.char) {
		options := C.memlith_region_options{
			flags: C.uint32_t(flags), tracker: C.uint32_t(tracker), size: C.uint64_t(size), max_size: C.uint64_t(maxSize),
		}
		options.struct_size = C.uint64_t(unsafe.Sizeof(options))
		var opened *C.memlith_region
		failed = check(func() C.int32_t { return C.memlith_region_open(storeOf(store), plain, &options, &opened) })
		region = Handle(unsafe.Pointer(opened))
	})
	return
}

func RegionClose(region Handle) *Failure {
	return check(func() C.int32_t { return C.memlith_region_close(regionOf(region)) })
}

// RegionBytes is the memory of the region, which is not Go's: valid until the region is closed.
func RegionBytes(region Handle) []byte {
	return unsafe.Slice((*byte)(C.memlith_region_address(regionOf(region))), int(RegionSize(region)))
}

func RegionSize(region Handle) uint64 { return uint64(C.memlith_region_size(regionOf(region))) }

func RegionGrow(region Handle, size uint64) *Failure {
	return check(func() C.int32_t { return C.memlith_region_grow(regionOf(region), C.uint64_t(size)) })
}

func RegionUnpersisted(region Handle) (uint64, *Failure) {
	var bytes C.uint64_t
	failed := check(func() C.int32_t { return C.memlith_region_unpersisted(regionOf(region), &bytes) })
	return uint64(bytes), failed
}

func Touch(region Handle, part []byte) *Failure {
	return check(func() C.int32_t {
		return C.memlith_touch(regionOf(region), unsafe.Pointer(data(part)), size(part))
	})
}

func Prepare(region Handle, part []byte) *Failure {
	return check(func() C.int32_t {
		return C.memlith_prepare(regionOf(region), unsafe.Pointer(data(part)), size(part))
	})
}

func RegionRelease(region Handle) *Failure {
	return check(func() C.int32_t { return C.memlith_region_release(regionOf(region)) })
}

func RegionDiscard(region Handle, part []byte) *Failure {
	return check(func() C.int32_t {
		return C.memlith_region_discard(regionOf(region), unsafe.Pointer(data(part)), size(part))
	})
}

// regionsOf is never empty, so that it has a first element.
func regionsOf(handles []Handle) []*C.memlith_region {
	regions := make([]*C.memlith_region, len(handles), len(handles)+1)
	for i, handle := range handles {
		regions[i] = regionOf(handle)
	}
	return regions[:len(handles)+1]
}

// Persist makes durable what any thread has stored to the regions, in one commit.
func Persist(handles []Handle) *Failure {
	regions := regionsOf(handles)
	return check(func() C.int32_t {
		return C.memlith_persist(&regions[0], C.uint64_t(len(handles)), ScopeProcess)
	})
}

// PersistAsync captures the same.
func PersistAsync(handles []Handle) (uint64, *Failure) {
	regions := regionsOf(handles)
	var ticket C.uint64_t
	failed := check(func() C.int32_t {
		return C.memlith_persist_async(&regions[0], C.uint64_t(len(handles)), ScopeProcess, &ticket)
	})
	return uint64(ticket), failed
}

func PersistRange(region Handle, part []byte) *Failure {
	return check(func() C.int32_t {
		return C.memlith_persist_range(regionOf(region), unsafe.Pointer(data(part)), size(part), ScopeProcess)
	})
}

func Rollback(handles []Handle) *Failure {
	regions := regionsOf(handles)
	return check(func() C.int32_t {
		return C.memlith_rollback(&regions[0], C.uint64_t(len(handles)), ScopeProcess)
	})
}

func TxAddRegion(tx, region Handle, flags uint32) *Failure {
	return check(func() C.int32_t { return C.memlith_txn_add_region(txOf(tx), regionOf(region), C.uint32_t(flags)) })
}

func TxTouchBefore(tx Handle, part []byte) *Failure {
	return check(func() C.int32_t {
		return C.memlith_touch_before(txOf(tx), unsafe.Pointer(data(part)), size(part))
	})
}

func TxWrite(tx Handle, target, bytes []byte) *Failure {
	return check(func() C.int32_t {
		return C.memlith_txn_write(txOf(tx), unsafe.Pointer(data(target)), unsafe.Pointer(data(bytes)), size(bytes))
	})
}

// RegionReport is memlith_region_info.
type RegionReport struct {
	Name                   string
	Address, Size, MaxSize uint64
	Tracker                uint32
	TrackerDetail          string
}

func RegionInfo(region Handle) (RegionReport, *Failure) {
	var info C.memlith_region_info
	info.struct_size = C.uint64_t(unsafe.Sizeof(info))
	failed := check(func() C.int32_t { return C.memlith_region_get_info(regionOf(region), &info) })
	return RegionReport{
		Name: C.GoString(&info.name[0]), Address: uint64(info.address), Size: uint64(info.size),
		MaxSize: uint64(info.max_size), Tracker: uint32(info.tracker), TrackerDetail: C.GoString(&info.tracker_detail[0]),
	}, failed
}
