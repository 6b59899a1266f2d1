// Command bboltconvert copies a database of go.etcd.io/bbolt to one of integrations/bbolt, or back: all buckets,
// records and sequences. The program that uses the database must be stopped. The source keeps its records. The result
// appears under its name when it is complete and durable.
package main

import (
	"fmt"
	"os"

	"memlith.org/memlith/bboltconvert/convert"
)

func main() {
	if len(os.Args) != 4 || (os.Args[1] != "to-memlith" && os.Args[1] != "to-bbolt") {
		fmt.Fprintln(os.Stderr, "usage: bboltconvert to-memlith|to-bbolt FROM TO")
		os.Exit(2)
	}
	count, err := convert.Database(os.Args[2], os.Args[3], os.Args[1] == "to-memlith")
	if err != nil {
		fmt.Fprintln(os.Stderr, "bboltconvert:", err)
		os.Exit(1)
	}
	fmt.Printf("%d records were copied\n", count)
}
