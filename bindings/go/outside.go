package memlith

import "memlith.org/memlith/internal/capi"

// Stats holds counters of a store since it was opened, and latencies in nanoseconds; memlith/store.h describes them.
type Stats = capi.StatsReport

// Stats returns them. ErrReadOnly: the store is only read.
func (s *Store) Stats() (stats Stats, err error) {
	err = s.call(func(store capi.Handle) (failed *capi.Failure) {
		stats, failed = capi.StoreStats(store)
		return failed
	})
	return stats, err
}

// Report is what Verify has seen.
type Report = capi.VerifyReport

// Verify checks every structure of the store at that path on the disk, also while a process uses it, and changes
// nothing. The error is the first fault.
func Verify(path string) (Report, error) {
	report, failed := capi.Verify(path)
	return report, errorOf(failed)
}

// CopyReport describes a copy: it has every commit of the original before Ticket, and none behind it.
type CopyReport = capi.CopyReport

// Copy copies a whole store, as one durable commit left it, to a name that does not exist yet, also while a process
// uses the store. The copy appears when it is whole and durable, or not at all. docs/backup.md is the guide.
func Copy(path, target string) (CopyReport, error) {
	report, failed := capi.StoreCopy(path, target)
	return report, errorOf(failed)
}

// DataReport is what CheckData has found, in blocks of 4096 bytes.
type DataReport = capi.DataReport

// CheckData compares the data of the folder store at that path with the checksums that are kept of it, also while a
// process uses the store. Changes nothing. Damage is no error: look at BlocksDamaged.
func CheckData(path string) (DataReport, error) {
	report, failed := capi.CheckData(path)
	return report, errorOf(failed)
}
