// etcd with memlith below it: etcd's own server, unmodified, whose database is a kv store of memlith instead of a file
// of go.etcd.io/bbolt. go.mod replaces that module by integrations/bbolt; this is all there is to it.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
