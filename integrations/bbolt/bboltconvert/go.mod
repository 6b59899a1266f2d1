module memlith.org/memlith/bboltconvert

go 1.25.0

require (
	go.etcd.io/bbolt v1.5.0
	memlith.org/bbolt v0.0.0
	memlith.org/memlith/retwis v0.0.0
)

require (
	golang.org/x/sys v0.45.0 // indirect
	memlith.org/memlith v0.0.0 // indirect
)

// The original keeps its path. integrations/bbolt gets another one here, and takes the original's errors.
replace memlith.org/bbolt => ../

replace memlith.org/memlith => ../../../bindings/go

replace memlith.org/memlith/retwis => ../../raft/retwis
