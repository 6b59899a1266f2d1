package convert

import "fmt"

// bucket is what the buckets of both packages have.
type bucket[Self any] interface {
	Sequence() uint64
	SetSequence(number uint64) error
	ForEach(call func(key, value []byte) error) error
	Bucket(name []byte) Self
	CreateBucket(name []byte) (Self, error)
	Put(key, value []byte) error
}

// target begins writing transactions one after another.
type target[To bucket[To]] struct {
	begin  func() (root To, commit func() error, err error)
	root   To
	commit func() error
	bytes  int // written in the transaction of now
	count  uint64
	number int // of the transaction
}

// Bytes of a commit.
const commitBytes = 16 << 20

func (t *target[To]) next() (err error) {
	if t.commit != nil {
		if err := t.commit(); err != nil {
			return err
		}
	}
	t.bytes = 0
	t.number++
	t.root, t.commit, err = t.begin()
	return err
}

// at finds the bucket of a path in the transaction of now.
func (t *target[To]) at(path [][]byte) To {
	found := t.root
	for _, name := range path {
		found = found.Bucket(name)
	}
	return found
}

// copyBucket copies what is in a bucket, and the buckets in it, to the bucket of the path.
func copyBucket[From bucket[From], To bucket[To]](from From, t *target[To], path [][]byte) error {
	to, number := t.at(path), t.number
	if sequence := from.Sequence(); sequence != 0 {
		if err := to.SetSequence(sequence); err != nil {
			return err
		}
	}
	return from.ForEach(func(key, value []byte) error {
		if t.bytes > 0 && t.bytes+len(key)+len(value) > commitBytes {
			if err := t.next(); err != nil {
				return err
			}
		}
		if t.number != number { // also by a bucket in this one
			to, number = t.at(path), t.number
		}
		t.bytes += len(key) + len(value)
		if value == nil {
			if _, err := to.CreateBucket(key); err != nil {
				return fmt.Errorf("bucket %q in %q: %w", key, path, err)
			}
			return copyBucket(from.Bucket(key), t, append(append([][]byte(nil), path...), key))
		}
		t.count++
		if err := to.Put(key, value); err != nil {
			return fmt.Errorf("key of %d bytes, %.40q, value of %d bytes, in bucket %q: %w", len(key), key, len(value),
				path, err)
		}
		return nil
	})
}
