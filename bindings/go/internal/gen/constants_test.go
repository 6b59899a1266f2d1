package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func include() string {
	if named := os.Getenv("MEMLITH_INCLUDE_DIR"); named != "" {
		return named
	}
	return filepath.Join("..", "..", "..", "..", "include")
}

func TestTheFileIsWhatTheHeadersSay(t *testing.T) {
	wanted, err := Constants(include())
	if err != nil {
		t.Fatal(err)
	}
	found, err := os.ReadFile(filepath.Join("..", "capi", "constants.go"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(wanted, found) {
		t.Fatal("the headers have other constants: run `go generate ./internal/capi`")
	}
	for _, name := range []string{"NotFound ", "KvValueBytesMax ", "ApplogGrow ", "Create ", "CommitWeak "} {
		if !bytes.Contains(found, []byte(name)) {
			t.Errorf("there is no constant %s", name)
		}
	}
}

func TestAFolderWithoutHeadersIsAnError(t *testing.T) {
	if _, err := Constants(t.TempDir()); err == nil {
		t.Fatal("no error")
	}
}
