// Package child runs a part of a test in a process of its own, which the test kills. Of tests only.
package child

import (
	"bufio"
	"math/rand"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"
)

const roleVariable = "MEMLITH_GO_CHILD"

// Main is for TestMain: a process that was started as a child runs its role, and never returns from it.
func Main(m *testing.M, roles map[string]func(folder string)) {
	if role, ok := roles[os.Getenv(roleVariable)]; ok {
		role(os.Getenv(roleVariable + "_FOLDER"))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Seed is MEMLITH_SEED, or a random one; the test prints it if it fails.
func Seed(t *testing.T) *rand.Rand {
	seed := time.Now().UnixNano()
	if given, err := strconv.ParseInt(os.Getenv("MEMLITH_SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("seed %d (replay with MEMLITH_SEED=%d)", seed, seed)
	return rand.New(rand.NewSource(seed))
}

// Folder is a folder of the test, where MEMLITH_TEST_DIR says.
func Folder(t testing.TB) string {
	base := os.Getenv("MEMLITH_TEST_DIR")
	if base != "" {
		if err := os.MkdirAll(base, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	folder, err := os.MkdirTemp(base, "go")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

// RunAndKill starts a role, kills it with SIGKILL a moment after it has printed so many lines, and returns all lines
// that it printed.
func RunAndKill(t *testing.T, role, folder string, lines int, later time.Duration) []string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program)
	command.Env = append(os.Environ(), roleVariable+"="+role, roleVariable+"_FOLDER="+folder)
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var said []string
	for scanner := bufio.NewScanner(output); scanner.Scan(); {
		said = append(said, scanner.Text())
		if len(said) == lines {
			time.AfterFunc(later, func() { _ = command.Process.Kill() })
		}
	}
	err = command.Wait()
	if status, ok := command.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("%s ended by itself: %v", role, err)
	}
	return said
}
