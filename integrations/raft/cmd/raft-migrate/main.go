// Command raft-migrate copies the log, term and vote of a raft-boltdb file to a new store of raftstore. The node must
// be stopped; the file is not changed. Snapshots stay where they are.
package main

import (
	"fmt"
	"os"

	boltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"memlith.org/memlith/raftstore"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: raft-migrate RAFT.DB FOLDER")
		os.Exit(2)
	}
	count, err := migrate(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "raft-migrate:", err)
		os.Exit(1)
	}
	fmt.Printf("%d entries were copied\n", count)
}

func migrate(from, to string) (count uint64, err error) {
	if _, err := os.Stat(from); err != nil {
		return 0, err
	}
	if _, err := os.Stat(to); err == nil {
		return 0, fmt.Errorf("%s exists already", to)
	}
	source, err := boltdb.New(boltdb.Options{Path: from, BoltOptions: &bbolt.Options{ReadOnly: true}})
	if err != nil {
		return 0, err
	}
	defer source.Close()
	target, err := raftstore.Open(to, nil, raftstore.Options{})
	if err != nil {
		return 0, err
	}
	defer func() {
		if closed := target.Close(); err == nil {
			err = closed
		}
	}()
	return target.Migrate(source, source)
}
