package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"

	"memlith.org/memlith"
	"memlith.org/memlith/applog"
)

// The folder of a log has a store of memlith, and a file with a name that etcd looks for. An etcd that is not built
// with this package takes the file for its log, and refuses it: without such a file it would take the member for a new
// one and begin an empty log.
const (
	storeName = "store"
	guardName = "0000000000000000-0000000000000000.wal"
	guardKind = 77 // no kind of etcd's
	guardText = "This write-ahead log of etcd is kept by memlith. Start the etcd that is built with memlith, or convert " +
		"the log."
	temporary = ".tmp" // behind the name of a folder that is being made
)

// Exist tells whether a folder has a log, also one of etcd's own, which Open refuses.
func Exist(dir string) bool {
	names, err := fileutil.ReadDir(dir, fileutil.WithExt(".wal"))
	return err == nil && len(names) > 0
}

// createFolder makes the folder of a log, durably, with what `fill` appends.
func createFolder(lg *zap.Logger, dirpath string, fill func(log *applog.Log) error) error {
	if Exist(dirpath) {
		return os.ErrExist
	}
	unfinished := filepath.Clean(dirpath) + temporary
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	defer os.RemoveAll(unfinished)
	if err := fileutil.CreateDirAll(lg, unfinished); err != nil {
		return err
	}
	store, err := memlith.Open(filepath.Join(unfinished, storeName), memlith.Options{Create: true, Exclusive: true})
	if err != nil {
		return err
	}
	log, err := openLog(store, true)
	if err == nil {
		err = errors.Join(fill(log), log.Close())
	}
	if err = errors.Join(err, store.Close()); err != nil {
		return err
	}
	guard, err := os.OpenFile(filepath.Join(unfinished, guardName), os.O_WRONLY|os.O_CREATE|os.O_EXCL,
		fileutil.PrivateFileMode)
	if err != nil {
		return err
	}
	_, err = guard.Write(guardBytes())
	if err = errors.Join(err, guard.Sync(), guard.Close()); err != nil {
		return err
	}
	if err := syncFolder(unfinished); err != nil {
		return err
	}
	if err := os.RemoveAll(dirpath); err != nil { // it has no log
		return err
	}
	if err := os.Rename(unfinished, dirpath); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(filepath.Clean(dirpath)))
}

func openLog(store *memlith.Store, create bool) (*applog.Log, error) {
	return applog.Open(store, logName, applog.Options{Create: create, Exclusive: create, WhenFull: applog.Grow,
		Size: logBytes})
}

func openFolder(dirpath string, options memlith.Options) (*memlith.Store, *applog.Log, error) {
	path := filepath.Join(dirpath, storeName)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if Exist(dirpath) {
			return nil, nil, fmt.Errorf("wal: %s has a write-ahead log of etcd's own, which this etcd, built with memlith, "+
				"does not read; convert it with `etcdconvert to-memlith`, or start the etcd that wrote it", dirpath)
		}
		return nil, nil, fmt.Errorf("%w: %s", ErrFileNotFound, dirpath)
	}
	store, err := memlith.Open(path, options)
	if err != nil {
		return nil, nil, fmt.Errorf("wal: %w", err)
	}
	log, err := openLog(store, false)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("wal: %w", err), store.Close())
	}
	return store, log, nil
}

// guardBytes is a file of etcd's log with one record, of a kind that etcd does not know.
func guardBytes() []byte {
	record := walpb.Record{Type: guardKind, Data: []byte(guardText),
		Crc: crc32.Checksum([]byte(guardText), crc32.MakeTable(crc32.Castagnoli))}
	bytes, err := record.Marshal()
	if err != nil {
		panic(err) // it has no required field that could be missing
	}
	// A length, with the number of bytes of padding to 8, and a mark that there are some, in its highest byte.
	length, padding := uint64(len(bytes)), uint64(-len(bytes)&7)
	if padding != 0 {
		length |= (0x80 | padding) << 56
	}
	out := binary.LittleEndian.AppendUint64(nil, length)
	return append(append(out, bytes...), make([]byte, padding)...)
}
