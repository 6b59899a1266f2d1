// Command gen writes internal/capi/constants.go: the constants of memlith's C headers by their names. Their values are
// the C compiler's, so that none is copied by hand.
//
//	go generate ./internal/capi
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: gen FOLDER-OF-HEADERS OUTPUT")
		os.Exit(2)
	}
	text, err := Constants(os.Args[1])
	if err == nil {
		err = os.WriteFile(os.Args[2], text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
