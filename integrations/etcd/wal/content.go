package wal

// content is what has to be known of the records of a log to remove the older ones.
type content struct {
	newest    uint64 // the number of the newest record
	bytes     uint64 // of records up to it
	metadata  uint64 // the number of the newest record of that kind; 0: none
	state     uint64
	marks     []place // some of the entries, in the order of the log; the first of all is one of them
	snapshots []place // all
}

// place is a record: its number, raft's index, and the bytes of the records before it.
type place struct{ number, index, before uint64 }

const (
	markBytes     = 64 << 10 // of records between marks, about
	snapshotsKept = 5        // as many as etcd keeps files of snapshots
	bytesKept     = 256 << 20
)

func (c *content) note(number uint64, kind int64, index uint64, bytes int) {
	at := place{number, index, c.bytes}
	switch kind {
	case MetadataType:
		c.metadata = number
	case StateType:
		c.state = number
	case SnapshotType:
		c.snapshots = append(c.snapshots, at)
	case EntryType:
		if len(c.marks) == 0 || at.before-c.marks[len(c.marks)-1].before >= markBytes {
			c.marks = append(c.marks, at)
		}
	}
	c.newest = number
	c.bytes += uint64(bytes)
}

// releasable returns the first record that is needed when a snapshot has everything up to the index; 0: all are. Needed
// are the records of the newest snapshot up to there, and those of up to four older ones, which etcd takes if the file
// of a newer one is damaged, as long as there are no more than 256 MiB of them.
func (c *content) releasable(index uint64) (first uint64) {
	kept := 0
	for i := len(c.snapshots) - 1; i >= 0 && kept < snapshotsKept; i-- {
		if c.snapshots[i].index > index {
			continue
		}
		from := c.from(c.snapshots[i])
		if kept > 0 && (from.number == 0 || c.bytes-from.before > bytesKept) {
			break
		}
		if from.number == 0 {
			return 0
		}
		if first == 0 || from.number < first {
			first = from.number
		}
		kept++
	}
	return first
}

// from returns where reading for a snapshot can begin: at the newest mark before its record whose index is not behind
// the first entry that is needed. All newer versions of that entry lie behind the mark, because saving the mark's entry
// dropped them from raft's log if they were there; and from the mark on, indexes go on without a gap. No number: all
// records are needed.
func (c *content) from(snapshot place) place {
	for i := len(c.marks) - 1; i >= 0; i-- {
		if mark := c.marks[i]; mark.number < snapshot.number && mark.index <= snapshot.index+1 {
			return mark
		}
	}
	return place{}
}

// drop forgets what lies before a record.
func (c *content) drop(first uint64) {
	c.marks, c.snapshots = since(c.marks, first), since(c.snapshots, first)
}

func since(places []place, first uint64) []place {
	for len(places) > 0 && places[0].number < first {
		places = places[1:]
	}
	return append([]place(nil), places...)
}
