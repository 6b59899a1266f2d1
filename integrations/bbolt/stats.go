package bbolt

import (
	"encoding/hex"
	"sync/atomic"
	"time"
)

// TxStats counts what transactions did: cursors, commits, and the time of commits. The other counters are of pages and
// nodes of bbolt, and stay 0.
type TxStats struct {
	PageCount, PageAlloc, CursorCount, NodeCount, NodeDeref, Rebalance int64
	RebalanceTime                                                      time.Duration
	Split, Spill                                                       int64
	SpillTime                                                          time.Duration
	Write                                                              int64 // commits
	WriteTime                                                          time.Duration
}

// Get and Inc read and add to a counter, while other goroutines do so.

func (s *TxStats) GetPageCount() int64             { return atomic.LoadInt64(&s.PageCount) }
func (s *TxStats) IncPageCount(by int64) int64     { return atomic.AddInt64(&s.PageCount, by) }
func (s *TxStats) GetPageAlloc() int64             { return atomic.LoadInt64(&s.PageAlloc) }
func (s *TxStats) IncPageAlloc(by int64) int64     { return atomic.AddInt64(&s.PageAlloc, by) }
func (s *TxStats) GetCursorCount() int64           { return atomic.LoadInt64(&s.CursorCount) }
func (s *TxStats) IncCursorCount(by int64) int64   { return atomic.AddInt64(&s.CursorCount, by) }
func (s *TxStats) GetNodeCount() int64             { return atomic.LoadInt64(&s.NodeCount) }
func (s *TxStats) IncNodeCount(by int64) int64     { return atomic.AddInt64(&s.NodeCount, by) }
func (s *TxStats) GetNodeDeref() int64             { return atomic.LoadInt64(&s.NodeDeref) }
func (s *TxStats) IncNodeDeref(by int64) int64     { return atomic.AddInt64(&s.NodeDeref, by) }
func (s *TxStats) GetRebalance() int64             { return atomic.LoadInt64(&s.Rebalance) }
func (s *TxStats) IncRebalance(by int64) int64     { return atomic.AddInt64(&s.Rebalance, by) }
func (s *TxStats) GetRebalanceTime() time.Duration { return getTime(&s.RebalanceTime) }
func (s *TxStats) IncRebalanceTime(by time.Duration) time.Duration {
	return addTime(&s.RebalanceTime, by)
}
func (s *TxStats) GetSplit() int64                             { return atomic.LoadInt64(&s.Split) }
func (s *TxStats) IncSplit(by int64) int64                     { return atomic.AddInt64(&s.Split, by) }
func (s *TxStats) GetSpill() int64                             { return atomic.LoadInt64(&s.Spill) }
func (s *TxStats) IncSpill(by int64) int64                     { return atomic.AddInt64(&s.Spill, by) }
func (s *TxStats) GetSpillTime() time.Duration                 { return getTime(&s.SpillTime) }
func (s *TxStats) IncSpillTime(by time.Duration) time.Duration { return addTime(&s.SpillTime, by) }
func (s *TxStats) GetWrite() int64                             { return atomic.LoadInt64(&s.Write) }
func (s *TxStats) IncWrite(by int64) int64                     { return atomic.AddInt64(&s.Write, by) }
func (s *TxStats) GetWriteTime() time.Duration                 { return getTime(&s.WriteTime) }
func (s *TxStats) IncWriteTime(by time.Duration) time.Duration { return addTime(&s.WriteTime, by) }

func getTime(of *time.Duration) time.Duration {
	return time.Duration(atomic.LoadInt64((*int64)(of)))
}
func addTime(to *time.Duration, by time.Duration) time.Duration {
	return time.Duration(atomic.AddInt64((*int64)(to), int64(by)))
}

// add takes over what a transaction that has ended counted.
func (s *TxStats) add(other *TxStats) {
	s.IncPageCount(other.GetPageCount())
	s.IncPageAlloc(other.GetPageAlloc())
	s.IncCursorCount(other.GetCursorCount())
	s.IncNodeCount(other.GetNodeCount())
	s.IncNodeDeref(other.GetNodeDeref())
	s.IncRebalance(other.GetRebalance())
	s.IncRebalanceTime(other.GetRebalanceTime())
	s.IncSplit(other.GetSplit())
	s.IncSpill(other.GetSpill())
	s.IncSpillTime(other.GetSpillTime())
	s.IncWrite(other.GetWrite())
	s.IncWriteTime(other.GetWriteTime())
}

func (s *TxStats) load() TxStats { return s.Sub(&TxStats{}) }

// Sub returns what was counted since the other ones were.
func (s *TxStats) Sub(other *TxStats) TxStats {
	return TxStats{
		PageCount:     s.GetPageCount() - other.GetPageCount(),
		PageAlloc:     s.GetPageAlloc() - other.GetPageAlloc(),
		CursorCount:   s.GetCursorCount() - other.GetCursorCount(),
		NodeCount:     s.GetNodeCount() - other.GetNodeCount(),
		NodeDeref:     s.GetNodeDeref() - other.GetNodeDeref(),
		Rebalance:     s.GetRebalance() - other.GetRebalance(),
		RebalanceTime: s.GetRebalanceTime() - other.GetRebalanceTime(),
		Split:         s.GetSplit() - other.GetSplit(),
		Spill:         s.GetSpill() - other.GetSpill(),
		SpillTime:     s.GetSpillTime() - other.GetSpillTime(),
		Write:         s.GetWrite() - other.GetWrite(),
		WriteTime:     s.GetWriteTime() - other.GetWriteTime(),
	}
}

// Stats counts what was done since opening.
type Stats struct {
	TxStats       TxStats
	FreePageN     int // of the kv store
	PendingPageN  int // 0, like the next two
	FreeAlloc     int
	FreelistInuse int
	TxN           int // reading transactions that were begun
	OpenTxN       int // of them, open now
}

// Sub returns the transactions since the other ones were counted, and the pages of now.
func (s *Stats) Sub(other *Stats) Stats {
	if other == nil {
		return *s
	}
	return Stats{TxStats: s.TxStats.Sub(&other.TxStats), FreePageN: s.FreePageN, TxN: s.TxN - other.TxN}
}

// Stats returns the counters; none with Options.NoStatistics.
func (db *DB) Stats() Stats {
	if db.noStats {
		return Stats{}
	}
	stats := Stats{TxN: int(db.reads.Load()), OpenTxN: int(db.readers.Load()), TxStats: db.counted.load()}
	db.using.RLock()
	defer db.using.RUnlock()
	if db.opened {
		if info, err := db.kv.Info(); err == nil {
			stats.FreePageN = int(info.FreePages)
		}
	}
	return stats
}

// Info has the size of pages. Data is 0: there is no mapping of the file.
type Info struct {
	Data     uintptr
	PageSize int
}

// Info returns it.
func (db *DB) Info() *Info { return &Info{PageSize: 4096} }

// BucketStats counts what is in a bucket and the buckets in it. The counters of bbolt's pages stay 0.
type BucketStats struct {
	BranchPageN, BranchOverflowN, LeafPageN, LeafOverflowN int

	KeyN  int // records and buckets
	Depth int // of buckets

	BranchAlloc, BranchInuse, LeafAlloc int
	LeafInuse                           int // bytes of keys and values

	BucketN                          int // with the bucket itself
	InlineBucketN, InlineBucketInuse int
}

// Add adds the counters of another bucket. Depth becomes the larger one.
func (s *BucketStats) Add(other BucketStats) {
	for _, each := range []struct {
		to *int
		by int
	}{{&s.BranchPageN, other.BranchPageN}, {&s.BranchOverflowN, other.BranchOverflowN},
		{&s.LeafPageN, other.LeafPageN}, {&s.LeafOverflowN, other.LeafOverflowN}, {&s.KeyN, other.KeyN},
		{&s.BranchAlloc, other.BranchAlloc}, {&s.BranchInuse, other.BranchInuse}, {&s.LeafAlloc, other.LeafAlloc},
		{&s.LeafInuse, other.LeafInuse}, {&s.BucketN, other.BucketN}, {&s.InlineBucketN, other.InlineBucketN},
		{&s.InlineBucketInuse, other.InlineBucketInuse}} {
		*each.to += each.by
	}
	if s.Depth < other.Depth {
		s.Depth = other.Depth
	}
}

// Stats counts, which reads everything.
func (b *Bucket) Stats() BucketStats {
	stats := BucketStats{BucketN: 1, Depth: 1}
	_ = b.ForEach(func(key, value []byte) error {
		stats.KeyN++
		stats.LeafInuse += len(key) + len(value)
		if child := b.childOf(key, value); child != nil {
			inner := child.Stats()
			inner.Depth++
			stats.Add(inner)
		}
		return nil
	})
	return stats
}

// BucketStructure is a bucket with the number of its records and the buckets in it.
type BucketStructure struct {
	Name     string            `json:"name"`
	KeyN     int               `json:"keyN"`
	Children []BucketStructure `json:"buckets,omitempty"`
}

// Inspect lists the buckets in this one, which reads everything. The caller knows the name of this one.
func (b *Bucket) Inspect() BucketStructure {
	var found BucketStructure
	_ = b.ForEach(func(key, value []byte) error {
		if child := b.childOf(key, value); child != nil {
			inner := child.Inspect()
			inner.Name = string(key)
			found.Children = append(found.Children, inner)
		} else {
			found.KeyN++
		}
		return nil
	})
	return found
}

// Pgid is the number of a bucket; with bbolt, of its page.
type Pgid uint64

// Root is the number of the bucket. It differs between the buckets of a database, and stays.
func (b *Bucket) Root() Pgid { return Pgid(b.number) }

// CheckOption of Check is accepted, and has no effect.
type CheckOption func()

// KVStringer makes text of keys and values.
type KVStringer interface {
	KeyToString([]byte) string
	ValueToString([]byte) string
}

type hexStringer struct{}

func (hexStringer) KeyToString(key []byte) string     { return hex.EncodeToString(key) }
func (hexStringer) ValueToString(value []byte) string { return hex.EncodeToString(value) }

// HexKVStringer makes hexadecimal digits.
func HexKVStringer() KVStringer { return hexStringer{} }

// WithKVStringer has no effect: messages of Check quote keys.
func WithKVStringer(KVStringer) CheckOption { return func() {} }

// WithPageId has no effect: Check looks at everything.
func WithPageId(uint64) CheckOption { return func() {} }
