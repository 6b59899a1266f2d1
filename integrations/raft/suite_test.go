package raftstore

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The names that the tests of raft-boltdb use for their store, on this one.
const suiteHead = `package raftstore

import (
	"bytes"
	"os"
	"reflect"
	"testing"

	"github.com/hashicorp/raft"
)

type BoltStore struct {
	*Store
	path string
}

func testBoltStore(t testing.TB) *BoltStore {
	path := folder(t)
	store, err := Open(path, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &BoltStore{store, path}
}
`

// The tests that hashicorp's raft-boltdb has of any store; the others are about bolt's options and files. They are
// taken from the module in Go's cache, and compiled with this package.
func TestTheTestsOfRaftBoltdbPass(t *testing.T) {
	listed, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/hashicorp/raft-boltdb/v2").Output()
	check(t, err)
	names := token.NewFileSet()
	tests := filepath.Join(strings.TrimSpace(string(listed)), "bolt_store_test.go")
	file, err := parser.ParseFile(names, tests, nil, 0)
	check(t, err)
	wanted := regexp.MustCompile(`^(testRaftLog|TestBoltStore_(FirstIndex|LastIndex|GetLog|SetLog|SetLogs|` +
		`DeleteRange|Set_Get|SetUint64_GetUint64))$`)
	suite := bytes.NewBufferString(suiteHead)
	count := 0
	for _, declaration := range file.Decls {
		if function, ok := declaration.(*ast.FuncDecl); ok && wanted.MatchString(function.Name.Name) {
			count++
			suite.WriteString("\n")
			check(t, printer.Fprint(suite, names, function))
			suite.WriteString("\n")
		}
	}
	if count != 9 {
		t.Fatalf("raft-boltdb has %d of 9 functions", count)
	}
	place := folder(t)
	source, overlay := filepath.Join(place, "suite.go"), filepath.Join(place, "overlay.json")
	check(t, os.WriteFile(source, suite.Bytes(), 0o666))
	here, err := os.Getwd()
	check(t, err)
	replaced, err := json.Marshal(map[string]any{
		"Replace": map[string]string{filepath.Join(here, "raft_boltdb_suite_test.go"): source},
	})
	check(t, err)
	check(t, os.WriteFile(overlay, replaced, 0o666))
	output, err := exec.Command("go", "test", "-count=1", "-v", "-overlay", overlay, "-run", "^TestBoltStore_", ".").
		CombinedOutput()
	if passed := bytes.Count(output, []byte("--- PASS: TestBoltStore_")); err != nil || passed != count-1 {
		t.Fatalf("%d of %d passed: %v\n%s", passed, count-1, err, output)
	}
}
