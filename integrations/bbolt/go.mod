module go.etcd.io/bbolt

go 1.20

require memlith.org/memlith v0.0.0

replace memlith.org/memlith => ../../bindings/go
