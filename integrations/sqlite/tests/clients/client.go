// A client of Go's mattn/go-sqlite3: client work|loop|count DATABASE (run_clients.py).
package main

import (
	"database/sql"
	"fmt"
	"os"

	"github.com/mattn/go-sqlite3"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	command, name := os.Args[1], os.Args[2]
	sql.Register("loader", &sqlite3.SQLiteDriver{ConnectHook: func(conn *sqlite3.SQLiteConn) error {
		return ADVICE
	}})
	if err := must(sql.Open("loader", ":memory:")).Ping(); err != nil {
		panic(err)
	}
	db := must(sql.Open("sqlite3", name))
	db.SetMaxOpenConns(1)
	value := func(query string) (found string) {
		if err := db.QueryRow(query).Scan(&found); err == sql.ErrNoRows {
			return "plain"
		} else if err != nil {
			panic(err)
		}
		return found
	}
	must(db.Exec("create table if not exists t(a integer primary key, b text)"))
	switch command {
	case "work":
		tx := must(db.Begin())
		for i := range 100 {
			must(tx.Exec("insert into t(b) values(?)", fmt.Sprint("row ", i)))
		}
		must(0, tx.Commit())
		tx = must(db.Begin())
		must(tx.Exec("delete from t"))
		must(0, tx.Rollback())
		other := must(sql.Open("sqlite3", name))
		value("pragma journal_mode = wal")
		must(other.Exec("insert into t(b) values('other')"))
		fmt.Println(value("select count(*) from t"), value("pragma memlith_durability"))
		other.Close()
	case "loop":
		for {
			fmt.Println(must(must(db.Exec("insert into t(b) values('kept')")).LastInsertId()))
		}
	default:
		fmt.Println(value("select count(*) from t"), value("pragma integrity_check"))
	}
	db.Close()
}
