package wal

import "github.com/prometheus/client_golang/prometheus"

// Where the package is part of etcd, these are etcd's, in a file of the same name, and registered.
var (
	walFsyncSec   = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "wal_fsync_duration_seconds"})
	walWriteBytes = prometheus.NewGauge(prometheus.GaugeOpts{Name: "wal_write_bytes_total"})
)
