// Command etcdconvert makes a data directory of etcd as it comes one of the etcd that is built with memlith, or back:
// database, write-ahead log and snapshots. etcd must have ended. The source keeps what it has, and the result appears
// under its name when it is complete and durable.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"memlith.org/memlith/bboltconvert/convert"
)

const usage = `usage: etcdconvert [-wal-dir FOLDER] to-memlith|to-stock FROM TO

FROM and TO are data directories. The write-ahead log comes to TO/member/wal.
`

func main() {
	walFolder := flag.String("wal-dir", "", "the write-ahead log of FROM, if it is not FROM/member/wal")
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 3 || (flag.Arg(0) != "to-memlith" && flag.Arg(0) != "to-stock") {
		flag.Usage()
		os.Exit(2)
	}
	count, err := convertDirectory(flag.Arg(1), *walFolder, flag.Arg(2), flag.Arg(0) == "to-memlith")
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcdconvert:", err)
		os.Exit(1)
	}
	fmt.Printf("%d records of databases, and %d entries of the write-ahead log, were copied\n", count.records,
		count.entries)
}

type counts struct{ records, entries uint64 }

const (
	privateFolder = 0o700
	unfinished    = ".converting" // behind the name of the result
	database      = "db"          // in the folder of snapshots; names of databases that others sent end so, too
)

func convertDirectory(from, walFrom, to string, toMemlith bool) (count counts, err error) {
	if walFrom == "" {
		walFrom = filepath.Join(from, "member", "wal")
	}
	temporary := filepath.Clean(to) + unfinished
	for _, each := range []string{to, temporary} {
		if _, err := os.Lstat(each); !errors.Is(err, os.ErrNotExist) {
			return count, errors.Join(err, fmt.Errorf("%s exists already", each))
		}
	}
	if err := os.MkdirAll(filepath.Join(temporary, "member", "snap"), privateFolder); err != nil {
		return count, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	// The database comes first: it is locked if an etcd runs.
	if count.records, err = convertSnapshots(from, temporary, toMemlith); err != nil {
		return count, err
	}
	if count.entries, err = convertLog(walFrom, filepath.Join(temporary, "member", "wal"), toMemlith); err != nil {
		return count, err
	}
	for _, each := range []string{filepath.Join(temporary, "member", "snap"), filepath.Join(temporary, "member"),
		temporary} {
		if err := syncPath(each); err != nil {
			return count, err
		}
	}
	if err := os.Rename(temporary, to); err != nil {
		return count, err
	}
	return count, syncPath(filepath.Dir(filepath.Clean(to)))
}

// convertSnapshots converts the database, databases that other members sent, and copies the files of snapshots.
func convertSnapshots(from, to string, toMemlith bool) (records uint64, err error) {
	source, target := filepath.Join(from, "member", "snap"), filepath.Join(to, "member", "snap")
	entries, err := os.ReadDir(source)
	if err != nil {
		return 0, err
	}
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case name == database || strings.HasSuffix(name, ".snap."+database):
			count, err := convert.Database(filepath.Join(source, name), filepath.Join(target, name), toMemlith)
			if err != nil {
				return 0, err
			}
			records += count
		case strings.HasSuffix(name, ".snap"):
			if err := copyFile(filepath.Join(source, name), filepath.Join(target, name)); err != nil {
				return 0, err
			}
		}
	}
	return records, nil
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Sync(), target.Close())
}

func syncPath(name string) error {
	folder, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
