package capi

// #include "shim.h"
import "C"

import "unsafe"

// StatsReport is memlith_stats.
type StatsReport struct {
	Process, OpenedNs                                                       uint64
	Persists, PersistP50Ns, PersistP99Ns, PersistP999Ns, PersistMaxNs       uint64
	Captures, CaptureP50Ns, CaptureP99Ns, CaptureP999Ns, CaptureMaxNs       uint64
	KvCommits, KvCommitP50Ns, KvCommitP99Ns, KvCommitP999Ns, KvCommitMaxNs  uint64
	KvWeakCommits                                                           uint64
	KvWeakWaits, KvWeakWaitP50Ns, KvWeakWaitP99Ns                           uint64
	KvWeakWaitP999Ns, KvWeakWaitMaxNs, KvOldestWaitingNs                    uint64
	ApplogEntries, ApplogWrites                                             uint64
	ApplogWriteP50Ns, ApplogWriteP99Ns, ApplogWriteP999Ns, ApplogWriteMaxNs uint64
	Frames, Batches, CapturedBytes, CapturedPages, LastCapturedPages        uint64
	LoggedBytes, LogBytes, LogUsedBytes, DurableLsn                         uint64
	Checkpoints, HomeBytes, CheckpointDoneBytes, CheckpointTotalBytes       uint64
	Poisoned                                                                bool
}

func StoreStats(store Handle) (StatsReport, *Failure) {
	var all C.memlith_stats
	all.struct_size = C.uint64_t(unsafe.Sizeof(all))
	failed := check(func() C.int32_t { return C.memlith_store_get_stats(storeOf(store), &all) })
	n := func(of C.uint64_t) uint64 { return uint64(of) }
	return StatsReport{
		Process: n(all.process), OpenedNs: n(all.opened_ns), Persists: n(all.persists),
		PersistP50Ns: n(all.persist_p50_ns), PersistP99Ns: n(all.persist_p99_ns),
		PersistP999Ns: n(all.persist_p999_ns), PersistMaxNs: n(all.persist_max_ns), Captures: n(all.captures),
		CaptureP50Ns: n(all.capture_p50_ns), CaptureP99Ns: n(all.capture_p99_ns),
		CaptureP999Ns: n(all.capture_p999_ns), CaptureMaxNs: n(all.capture_max_ns), KvCommits: n(all.kv_commits),
		KvCommitP50Ns: n(all.kv_commit_p50_ns), KvCommitP99Ns: n(all.kv_commit_p99_ns),
		KvCommitP999Ns: n(all.kv_commit_p999_ns), KvCommitMaxNs: n(all.kv_commit_max_ns),
		KvWeakCommits: n(all.kv_weak_commits), KvWeakWaits: n(all.kv_weak_waits),
		KvWeakWaitP50Ns: n(all.kv_weak_wait_p50_ns), KvWeakWaitP99Ns: n(all.kv_weak_wait_p99_ns),
		KvWeakWaitP999Ns: n(all.kv_weak_wait_p999_ns), KvWeakWaitMaxNs: n(all.kv_weak_wait_max_ns),
		KvOldestWaitingNs: n(all.kv_oldest_waiting_ns),
		ApplogEntries:     n(all.applog_entries), ApplogWrites: n(all.applog_writes),
		ApplogWriteP50Ns: n(all.applog_write_p50_ns), ApplogWriteP99Ns: n(all.applog_write_p99_ns),
		ApplogWriteP999Ns: n(all.applog_write_p999_ns), ApplogWriteMaxNs: n(all.applog_write_max_ns),
		Frames: n(all.frames), Batches: n(all.batches), CapturedBytes: n(all.captured_bytes),
		CapturedPages: n(all.captured_pages), LastCapturedPages: n(all.last_captured_pages),
		LoggedBytes: n(all.logged_bytes), LogBytes: n(all.log_bytes), LogUsedBytes: n(all.log_used_bytes),
		DurableLsn: n(all.durable_lsn), Checkpoints: n(all.checkpoints), HomeBytes: n(all.home_bytes),
		CheckpointDoneBytes: n(all.checkpoint_done_bytes), CheckpointTotalBytes: n(all.checkpoint_total_bytes),
		Poisoned: all.poisoned != 0,
	}, failed
}

// VerifyReport is memlith_report.
type VerifyReport struct {
	Frames, FrameBytes, Regions, RegionBytes, LogBytes, Incarnation uint64
	SuperblockCopies, Heaps, Kvs                                    uint32
	Clean, OneFile                                                  bool
}

func Verify(path string) (report VerifyReport, failed *Failure) {
	with(path, func(plain *C.char) {
		var all C.memlith_report
		all.struct_size = C.uint64_t(unsafe.Sizeof(all))
		failed = check(func() C.int32_t { return C.memlith_verify(plain, &all) })
		report = VerifyReport{
			Frames: uint64(all.frames), FrameBytes: uint64(all.frame_bytes), Regions: uint64(all.regions),
			RegionBytes: uint64(all.region_bytes), LogBytes: uint64(all.log_bytes), Incarnation: uint64(all.incarnation),
			SuperblockCopies: uint32(all.superblock_copies), Heaps: uint32(all.heaps), Kvs: uint32(all.kvs),
			Clean: all.clean != 0, OneFile: all.one_file != 0,
		}
	})
	return
}

// CopyReport is memlith_copy_report.
type CopyReport struct{ Ticket, Bytes, SharedBytes uint64 }

func StoreCopy(path, target string) (report CopyReport, failed *Failure) {
	with(path, func(from *C.char) {
		with(target, func(to *C.char) {
			var all C.memlith_copy_report
			all.struct_size = C.uint64_t(unsafe.Sizeof(all))
			failed = check(func() C.int32_t { return C.memlith_store_copy(from, to, nil, &all) })
			report = CopyReport{uint64(all.ticket), uint64(all.bytes), uint64(all.shared_bytes)}
		})
	})
	return
}

// DataReport is memlith_data_report, and what was told.
type DataReport struct {
	Ticket, Blocks, BlocksUnknown, BlocksDamaged uint64
	Damaged                                      []string // a sentence for each run of damaged blocks
}

func CheckData(path string) (report DataReport, failed *Failure) {
	with(path, func(plain *C.char) {
		var told C.mgo_told
		var all C.memlith_data_report
		all.struct_size = C.uint64_t(unsafe.Sizeof(all))
		failed = check(func() C.int32_t { return C.mgo_check_data(plain, &told, &all) })
		report = DataReport{Ticket: uint64(all.ticket), Blocks: uint64(all.blocks),
			BlocksUnknown: uint64(all.blocks_unknown), BlocksDamaged: uint64(all.blocks_damaged)}
		for at := unsafe.Pointer(told.bytes); len(report.Damaged) < int(told.count); {
			sentence := C.GoString((*C.char)(at))
			report.Damaged = append(report.Damaged, sentence)
			at = unsafe.Add(at, len(sentence)+1)
		}
		C.free(unsafe.Pointer(told.bytes))
	})
	return
}

// ---- archives ------------------------------------------------------------------------------------------------------

// Target is memlith_archive_target; what is empty is null.
type Target struct{ Folder, Put, Get, Remove string }

func (t Target) with(call func(*C.memlith_archive_target)) {
	var target C.memlith_archive_target
	target.struct_size = C.uint64_t(unsafe.Sizeof(target))
	for _, each := range []struct {
		text string
		to   **C.char
	}{{t.Folder, &target.folder}, {t.Put, &target.put_command}, {t.Get, &target.get_command},
		{t.Remove, &target.remove_command}} {
		if each.text != "" {
			*each.to = C.CString(each.text)
			defer C.free(unsafe.Pointer(*each.to))
		}
	}
	call(&target)
}

func archiveOf(handle Handle) *C.memlith_archive {
	return *(**C.memlith_archive)(unsafe.Pointer(&handle))
}
func standbyOf(handle Handle) *C.memlith_standby {
	return *(**C.memlith_standby)(unsafe.Pointer(&handle))
}

func ArchiveOpen(store string, target Target, flags uint32, waitMs, fullEverySeconds, keepSeconds,
	keepLogBytes uint64) (archive Handle, failed *Failure) {
	with(store, func(plain *C.char) {
		target.with(func(target *C.memlith_archive_target) {
			options := C.memlith_archive_options{
				flags: C.uint32_t(flags), wait_ms: C.uint64_t(waitMs), full_every_s: C.uint64_t(fullEverySeconds),
				keep_s: C.uint64_t(keepSeconds), keep_log_bytes: C.uint64_t(keepLogBytes),
			}
			options.struct_size = C.uint64_t(unsafe.Sizeof(options))
			var opened *C.memlith_archive
			failed = check(func() C.int32_t { return C.memlith_archive_open(plain, target, &options, &opened) })
			archive = Handle(unsafe.Pointer(opened))
		})
	})
	return
}

// ProgressReport is memlith_archive_progress.
type ProgressReport struct {
	ArchivedLsn, DurableLsn, Segments, FullCopies, Gaps, RefusedCopies uint64
	LogIsFull                                                          bool
}

// ArchiveLook steps, or flushes.
func ArchiveLook(archive Handle, flush bool) (ProgressReport, *Failure) {
	var all C.memlith_archive_progress
	all.struct_size = C.uint64_t(unsafe.Sizeof(all))
	failed := check(func() C.int32_t {
		if flush {
			return C.memlith_archive_flush(archiveOf(archive), &all)
		}
		return C.memlith_archive_step(archiveOf(archive), &all)
	})
	return ProgressReport{
		ArchivedLsn: uint64(all.archived_lsn), DurableLsn: uint64(all.durable_lsn), Segments: uint64(all.segments),
		FullCopies: uint64(all.full_copies), Gaps: uint64(all.gaps), RefusedCopies: uint64(all.refused_copies),
		LogIsFull: all.log_is_full != 0,
	}, failed
}

func ArchiveCopy(archive Handle) *Failure {
	return check(func() C.int32_t { return C.memlith_archive_copy(archiveOf(archive)) })
}

func ArchiveClose(archive Handle) *Failure {
	return check(func() C.int32_t { return C.memlith_archive_close(archiveOf(archive)) })
}

// RunReport is memlith_archive_run.
type RunReport struct {
	Number                                        uint64
	Why                                           string
	BeginLsn, EndLsn, BeginNs, EndNs              uint64
	Segments, SegmentBytes, FullCopies, FullBytes uint64
}

func ArchiveList(target Target) (runs []RunReport, failed *Failure) {
	target.with(func(target *C.memlith_archive_target) {
		var told C.mgo_told
		failed = check(func() C.int32_t { return C.mgo_archive_list(target, &told) })
		if told.count > 0 {
			for _, each := range unsafe.Slice((*C.mgo_run)(unsafe.Pointer(told.bytes)), int(told.count)) {
				run := each.run
				runs = append(runs, RunReport{
					Number: uint64(run.number), Why: C.GoString(&each.why[0]), BeginLsn: uint64(run.begin_lsn),
					EndLsn: uint64(run.end_lsn), BeginNs: uint64(run.begin_ns), EndNs: uint64(run.end_ns),
					Segments: uint64(run.segments), SegmentBytes: uint64(run.segment_bytes),
					FullCopies: uint64(run.full_copies), FullBytes: uint64(run.full_bytes),
				})
			}
		}
		C.free(unsafe.Pointer(told.bytes))
	})
	return
}

// RestoredReport is memlith_restored.
type RestoredReport struct {
	Lsn, Segments, ShortNs  uint64
	ClockWentBack, CutShort bool
}

func Restore(target Target, dest string, at, flags uint32, value, run uint64) (report RestoredReport,
	failed *Failure) {
	with(dest, func(plain *C.char) {
		target.with(func(target *C.memlith_archive_target) {
			options := C.memlith_restore_options{
				at: C.uint32_t(at), flags: C.uint32_t(flags), value: C.uint64_t(value), run: C.uint64_t(run),
			}
			options.struct_size = C.uint64_t(unsafe.Sizeof(options))
			var all C.memlith_restored
			all.struct_size = C.uint64_t(unsafe.Sizeof(all))
			failed = check(func() C.int32_t { return C.memlith_restore(target, plain, &options, &all) })
			report = RestoredReport{uint64(all.lsn), uint64(all.segments), uint64(all.short_ns),
				all.clock_went_back != 0, all.cut_short != 0}
		})
	})
	return
}

func StandbyOpen(target Target, dest string) (standby Handle, failed *Failure) {
	with(dest, func(plain *C.char) {
		target.with(func(target *C.memlith_archive_target) {
			var opened *C.memlith_standby
			failed = check(func() C.int32_t { return C.memlith_standby_open(target, plain, &opened) })
			standby = Handle(unsafe.Pointer(opened))
		})
	})
	return
}

func StandbyStep(standby Handle) (uint64, *Failure) {
	var lsn C.uint64_t
	failed := check(func() C.int32_t { return C.memlith_standby_step(standbyOf(standby), &lsn) })
	return uint64(lsn), failed
}

func StandbyClose(standby Handle) *Failure {
	return check(func() C.int32_t { return C.memlith_standby_close(standbyOf(standby)) })
}

func Promote(path string) (failed *Failure) {
	with(path, func(plain *C.char) {
		failed = check(func() C.int32_t { return C.memlith_promote(plain) })
	})
	return
}
