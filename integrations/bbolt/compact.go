package bbolt

// Compact copies all buckets, records and sequences of one state of src to dst, in commits of about so many bytes; 0:
// in one commit. After an error dst has a part of them.
func Compact(dst, src *DB, txMaxSize int64) error {
	return src.View(func(from *Tx) error { return compact(dst, from, txMaxSize) })
}

func compact(dst *DB, from *Tx, most int64) error {
	c := &compaction{dst: dst, most: most}
	tx, err := dst.Begin(true)
	if err != nil {
		return err
	}
	c.tx = tx
	defer func() { c.tx.end() }()
	if err := c.copy(from.root, nil); err != nil {
		return err
	}
	return c.tx.Commit()
}

type compaction struct {
	dst         *DB
	tx          *Tx
	most, bytes int64
}

// add commits before a record for which there is no room.
func (c *compaction) add(bytes int) error {
	if c.most > 0 && c.bytes > 0 && c.bytes+int64(bytes) > c.most {
		if err := c.tx.Commit(); err != nil {
			return err
		}
		tx, err := c.dst.Begin(true)
		if err != nil {
			return err
		}
		c.tx, c.bytes = tx, 0
	}
	c.bytes += int64(bytes)
	return nil
}

// The bucket at a path, in the transaction of now.
func (c *compaction) bucket(path [][]byte) (*Bucket, error) {
	b := c.tx.root
	for _, name := range path {
		var err error
		if b, err = b.child(name); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (c *compaction) copy(from *Bucket, path [][]byte) error {
	to, err := c.bucket(path)
	if err != nil {
		return err
	}
	if number := from.Sequence(); number != 0 {
		if err := to.SetSequence(number); err != nil {
			return err
		}
	}
	return from.ForEach(func(key, value []byte) error {
		if err := c.add(len(key) + len(value)); err != nil {
			return err
		}
		child := from.childOf(key, value)
		if to.tx != c.tx { // it was committed
			if to, err = c.bucket(path); err != nil {
				return err
			}
		}
		if value != nil {
			return to.Put(key, value)
		}
		if child == nil { // it is there, but could not be read
			return from.tx.failed
		}
		if _, err := to.CreateBucket(key); err != nil {
			return err
		}
		return c.copy(child, append(append([][]byte(nil), path...), key))
	})
}
