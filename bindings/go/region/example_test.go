package region_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"memlith.org/memlith"
	"memlith.org/memlith/applog"
	"memlith.org/memlith/region"
)

func fine(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A table of numbers that outlives the program.
func Example() {
	folder, err := os.MkdirTemp("", "memlith")
	fine(err)
	defer os.RemoveAll(folder)
	for run := 1; run <= 2; run++ {
		store, err := memlith.Open(filepath.Join(folder, "counters"), memlith.Options{Create: true})
		fine(err)
		counters, err := region.Open(store, "counters", region.Options{Create: true, Size: 1 << 20})
		fine(err)
		bytes := counters.Bytes() // zeros in the first run, found again in every later one
		for _, place := range []int{0, 8} {
			binary.LittleEndian.PutUint64(bytes[place:], binary.LittleEndian.Uint64(bytes[place:])+1)
		}
		fine(counters.Persist()) // both are durable, or neither
		fmt.Println("run", binary.LittleEndian.Uint64(bytes))
		fine(counters.Close())
		fine(store.Close())
	}
	// Output:
	// run 1
	// run 2
}

// A change that fails leaves nothing.
func ExampleRegion_Update() {
	folder, err := os.MkdirTemp("", "memlith")
	fine(err)
	defer os.RemoveAll(folder)
	store, err := memlith.Open(filepath.Join(folder, "bank"), memlith.Options{Create: true})
	fine(err)
	defer store.Close()
	accounts, err := region.Open(store, "accounts", region.Options{Create: true, Size: 4096})
	fine(err)
	defer accounts.Close()
	move := func(from, to int, amount byte) error {
		return accounts.Update(func(balances []byte) error {
			balances[to] += amount
			if balances[from] < amount {
				return errors.New("the balance is too small")
			}
			balances[from] -= amount
			return nil
		})
	}
	fine(accounts.Update(func(balances []byte) error { balances[1] = 100; return nil }))
	fmt.Println(move(1, 2, 70), accounts.Bytes()[1:3])
	fmt.Println(move(1, 2, 70), accounts.Bytes()[1:3])
	// Output:
	// <nil> [30 70]
	// the balance is too small [30 70]
}

// One commit for memory and for the entry of a log that was its cause.
func ExampleRegion_JoinUndo() {
	folder, err := os.MkdirTemp("", "memlith")
	fine(err)
	defer os.RemoveAll(folder)
	store, err := memlith.Open(filepath.Join(folder, "shop"), memlith.Options{Create: true})
	fine(err)
	defer store.Close()
	orders, err := applog.Open(store, "orders", applog.Options{Create: true})
	fine(err)
	defer orders.Close()
	stock, err := region.Open(store, "stock", region.Options{Create: true, Size: 4096})
	fine(err)
	defer stock.Close()
	_, err = orders.AppendWrite([]byte{7}) // acknowledged: it is durable
	fine(err)

	order, err := orders.TryRead()
	fine(err)
	txn, err := store.Begin()
	fine(err)
	defer txn.Abort() // undoes what was not committed
	fine(stock.JoinUndo(txn))
	stock.Bytes()[0] += order.Content[0]
	fine(orders.ConsumeIn(txn, order.Number))
	fine(txn.Commit()) // the change and the read position, both or neither
	info, err := orders.Info()
	fine(err)
	fmt.Println(stock.Bytes()[0], info.Consumed)
	// Output: 7 1
}
