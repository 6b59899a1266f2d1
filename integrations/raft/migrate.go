package raftstore

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// The keys that raft keeps in its stable store.
var raftKeys = []struct {
	name   string
	number bool
}{{"CurrentTerm", true}, {"LastVoteTerm", true}, {"LastVoteCand", false}}

const migrateBatch = 1024

// Migrate copies another log, with term and vote, to an empty LogStore, while raft does not run. It returns the number
// of entries. The other one is not changed. After an error delete the new store and begin again.
func (l *LogStore) Migrate(log raft.LogStore, stable raft.StableStore) (uint64, error) {
	if _, last, err := l.ends(); err != nil || last != 0 {
		return 0, errors.Join(err, errors.New("raftstore: the log that was to be filled is not empty"))
	}
	for _, key := range raftKeys {
		var err error
		if key.number {
			var value uint64
			if value, err = stable.GetUint64([]byte(key.name)); err == nil {
				err = l.SetUint64([]byte(key.name), value)
			}
		} else {
			var value []byte
			if value, err = stable.Get([]byte(key.name)); err == nil {
				err = l.Set([]byte(key.name), value)
			}
		}
		if err != nil && err.Error() != ErrKeyNotFound.Error() {
			return 0, fmt.Errorf("%s: %w", key.name, err)
		}
	}
	first, err := log.FirstIndex()
	if err != nil {
		return 0, err
	}
	last, err := log.LastIndex()
	if err != nil || last == 0 {
		return 0, err
	}
	batch := make([]*raft.Log, 0, migrateBatch)
	for index := first; index <= last; index++ {
		entry := new(raft.Log)
		if err := log.GetLog(index, entry); err != nil {
			return 0, fmt.Errorf("entry %d: %w", index, err)
		}
		if batch = append(batch, entry); len(batch) == migrateBatch || index == last {
			if err := l.StoreLogs(batch); err != nil {
				return 0, err
			}
			batch = batch[:0]
		}
	}
	return last - first + 1, nil
}
