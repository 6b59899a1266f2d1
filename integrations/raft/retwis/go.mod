module memlith.org/memlith/retwis

go 1.20
