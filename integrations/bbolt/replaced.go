package bbolt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"memlith.org/memlith"
)

// Programs put another database in the place of an open one, by renaming its file, and open that before they close the
// first one, as etcd does with the state of another member. The log, PATH.memlith, is then that of a file which has no
// name any more. It loses its name, too. The first database goes on with what it has open. Sooner or later its store
// notices that the file has no name, and stops; commits and Close are no errors then, because nothing is left to keep.
//
// If the program is killed before it opens the other database, the log is found beside a file to which it does not
// belong, and whose bytes it must not change. A file that begins without memlith's in-use header is complete without
// any log (docs/format.md, "The in-use header"): memlith refuses to open it beside that log, and the log is removed.

const logSuffix = ".memlith"

// replaceable is the files of an open database.
type replaceable struct {
	path      string
	file, log os.FileInfo // nil: they were gone already when the database was open
}

var (
	openMutex sync.Mutex
	openFiles = map[*replaceable]bool{}
)

func (r *replaceable) note(path string) {
	absolute, err := filepath.Abs(path)
	file, noFile := os.Stat(path)
	log, noLog := os.Stat(path + logSuffix)
	if errors.Join(err, noFile, noLog) != nil {
		return
	}
	r.path, r.file, r.log = absolute, file, log
	openMutex.Lock()
	defer openMutex.Unlock()
	openFiles[r] = true
}

func (r *replaceable) forget() {
	openMutex.Lock()
	defer openMutex.Unlock()
	delete(openFiles, r)
}

// isReplaced tells whether another file has the place of this one.
func (r *replaceable) isReplaced() bool {
	if r.file == nil {
		return false
	}
	now, err := os.Stat(r.path)
	return err == nil && !os.SameFile(r.file, now)
}

// letGo removes the name of the log of an open database of this process, whose file was replaced. False: there is none.
func letGo(path string) (bool, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return false, err
	}
	log, err := os.Stat(path + logSuffix)
	if err != nil {
		return false, nil
	}
	openMutex.Lock()
	defer openMutex.Unlock()
	for each := range openFiles {
		if each.path == path && os.SameFile(each.log, log) && each.isReplaced() {
			return true, os.Remove(path + logSuffix)
		}
	}
	return false, nil
}

// dropForeignLog removes the log beside which memlith refuses to open a file, if the file is complete without the log
// and the log is not in use. False: the log stays.
func dropForeignLog(path string, readOnly bool) (bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	log, err := os.Open(path + logSuffix)
	if err != nil {
		return false, err
	}
	defer log.Close()
	// As memlith locks it, so that no other process opens it meanwhile.
	if syscall.Flock(int(log.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil || !isComplete(file) {
		return false, nil
	}
	if readOnly {
		return false, fmt.Errorf("bbolt: %s%s was not closed, and does not belong to the file: open the database for "+
			"writing, once", path, logSuffix)
	}
	locked, err := log.Stat()
	if err != nil {
		return false, err
	}
	if now, err := os.Stat(path + logSuffix); err != nil || !os.SameFile(now, locked) {
		return true, nil // another process was faster
	}
	return true, os.Remove(path + logSuffix)
}

// isComplete tells whether a file is a kv store without the in-use header.
func isComplete(file *os.File) bool {
	var head [24]byte
	count, _ := file.ReadAt(head[:], 0)
	return count == len(head) && string(head[:16]) == string(make([]byte, 16)) && string(head[16:]) == kvMagic
}

// ---- reading without a log -----------------------------------------------------------------------------------------

// openCopy opens a copy of a file that is complete and has no log, such as a backup. Only opening for writing makes a
// log, and would change the file. `missing` is returned of another file.
func (db *DB) openCopy(missing error) (store *memlith.Store, err error) {
	file, err := os.Open(db.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if !isComplete(file) {
		return nil, missing
	}
	if db.copied, err = os.MkdirTemp("", "bbolt-read-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.removeCopy())
		}
	}()
	path := filepath.Join(db.copied, "copy")
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(to, file)
	if err = errors.Join(err, to.Close()); err != nil {
		return nil, err
	}
	return memlith.OpenFile(path, memlith.Options{Create: true, LogMaxBytes: logMaxBytes})
}

func (db *DB) removeCopy() error {
	folder := db.copied
	db.copied = ""
	if folder == "" {
		return nil
	}
	return os.RemoveAll(folder)
}
