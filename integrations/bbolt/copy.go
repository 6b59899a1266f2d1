package bbolt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Bytes of a commit of a copy.
const copyBytes = 16 << 20

// WriteTo writes a whole database, which Open reads, with the state of this transaction; of one that writes, the state
// before its changes, as bbolt does. Others write meanwhile. The copy is made in a file beside the database, or in
// os.TempDir if that folder cannot be written to, and takes memory and disk as the database does. After an error a part
// may have been written.
func (tx *Tx) WriteTo(w io.Writer) (written int64, err error) {
	if tx.txn == nil {
		return 0, ErrTxClosed
	}
	if tx.writable {
		committed, err := tx.db.Begin(false)
		if err != nil {
			return 0, err
		}
		defer committed.end()
		committed.size.Store(tx.size.Load())
		return committed.WriteTo(w)
	}
	folder, err := os.MkdirTemp(filepath.Dir(tx.db.path), ".bbolt-copy-")
	if err != nil {
		if folder, err = os.MkdirTemp("", "bbolt-copy-"); err != nil {
			return 0, err
		}
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	path := filepath.Join(folder, "copy")
	if err := tx.copyTo(path); err != nil {
		return 0, err
	}
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return io.Copy(w, file)
}

// copyTo makes a database at a path, which is complete without its log.
func (tx *Tx) copyTo(path string) error {
	copied, err := Open(path, 0o600, &Options{NoSync: true}) // Close makes the copy durable
	if err != nil {
		return err
	}
	err = compact(copied, tx, copyBytes)
	info, failed := copied.kv.Info()
	if err = errors.Join(err, failed, copied.Close()); err != nil {
		return err
	}
	// Programs send Size before the file, as etcd does. What lies behind the pages is not in use.
	size := int64(info.Pages * info.PageBytes)
	if asked := tx.size.Load(); asked > size {
		size = asked
	}
	return os.Truncate(path, size)
}

// Copy is WriteTo without the number of bytes.
func (tx *Tx) Copy(w io.Writer) error {
	_, err := tx.WriteTo(w)
	return err
}

// CopyFile writes the file of WriteTo, over an older one, and makes it durable. An older database's log beside that
// file, PATH.memlith, is an error: it belongs to other records.
func (tx *Tx) CopyFile(path string, mode os.FileMode) (err error) {
	if _, err := os.Lstat(path + ".memlith"); err == nil {
		return fmt.Errorf("bbolt: %s.memlith is the log of another database; remove it first, or choose another path", path)
	}
	openFile := tx.db.openFile
	file, err := openFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := tx.Copy(file); err != nil {
		return err
	}
	return file.Sync()
}
