module memlith.org/memlith

go 1.19
