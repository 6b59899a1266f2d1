package memlith_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"memlith.org/memlith/internal/child"
)

// The program of docs/go.md, as a user would have it: in a module of its own, which names this one's folder.
func TestTheProgramOfTheGuideCountsItsRuns(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "go.md"))
	check(t, err)
	_, program, found := strings.Cut(string(guide), "```go\n")
	if !found {
		t.Fatal("docs/go.md has no program")
	}
	program, _, _ = strings.Cut(program, "```")
	module, err := os.Getwd()
	check(t, err)
	folder := child.Folder(t)
	run := func(name string, arguments ...string) string {
		t.Helper()
		command := exec.Command(name, arguments...)
		command.Dir = folder
		command.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, arguments, err, output)
		}
		return string(output)
	}
	check(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o666))
	run("go", "mod", "init", "app.example")
	run("go", "mod", "edit", "-require", "memlith.org/memlith@v0.0.0", "-replace", "memlith.org/memlith="+module)
	run("go", "build", "-o", "app", ".")
	for i := 1; i <= 3; i++ {
		if said, wanted := run(filepath.Join(folder, "app")), fmt.Sprintf("run %d\n", i); said != wanted {
			t.Fatalf("%q instead of %q", said, wanted)
		}
	}
}
