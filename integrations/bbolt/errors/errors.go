// Package errors has the errors of package bbolt, by bbolt's names.
package errors

import "errors"

// Errors of a database.
var (
	ErrDatabaseNotOpen  = errors.New("database not open")
	ErrInvalid          = errors.New("invalid database")
	ErrTimeout          = errors.New("timeout")
	ErrInvalidMapping   = errors.New("database isn't correctly mapped") // never returned, like the next two
	ErrVersionMismatch  = errors.New("version mismatch")
	ErrChecksum         = errors.New("checksum error")
	ErrDatabaseReadOnly = errors.New("database is in read-only mode")
	ErrMaxSizeReached   = errors.New("database reached maximum size")
)

// Errors of a transaction.
var (
	ErrTxNotWritable = errors.New("tx not writable")
	ErrTxClosed      = errors.New("tx closed")

	ErrFreePagesNotLoaded = errors.New("free pages are not pre-loaded") // never returned
)

// Errors of a bucket.
var (
	ErrBucketNotFound     = errors.New("bucket not found")
	ErrBucketExists       = errors.New("bucket already exists")
	ErrBucketNameRequired = errors.New("bucket name required")
	ErrKeyRequired        = errors.New("key required")
	ErrKeyTooLarge        = errors.New("key too large")
	ErrValueTooLarge      = errors.New("value too large")
	ErrIncompatibleValue  = errors.New("incompatible value")
	ErrSameBuckets        = errors.New("the source and target are the same bucket")
	ErrDifferentDB        = errors.New("the source and target buckets are in different database files")
)
