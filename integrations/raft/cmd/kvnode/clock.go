//go:build clockjumps

package main

// For tests alone: the clock that people set (CLOCK_REALTIME) jumps in this process. Go asks the kernel's page of
// clocks (the vDSO) by a pointer of its runtime, which is set to a function here that adds nanoseconds to what the
// kernel says: 8 bytes, in the machine's order, of the file that MEMLITH_CLOCK names and the test changes. The
// monotonic clock stays as it is. Code in C and C++ asks by another way, and sees no jump.

/*
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int (*kernel_clock)(clockid_t, struct timespec*);
static const volatile int64_t* jump_ns;

static int jumping_clock(clockid_t clock, struct timespec* now) {
	int result = kernel_clock != 0 ? kernel_clock(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);
	if (result == 0 && clock == CLOCK_REALTIME) {
		int64_t jump = *jump_ns;
		now->tv_sec += jump / 1000000000;
		now->tv_nsec += jump % 1000000000;
		if (now->tv_nsec < 0) {
			now->tv_sec -= 1;
			now->tv_nsec += 1000000000;
		} else if (now->tv_nsec >= 1000000000) {
			now->tv_sec += 1;
			now->tv_nsec -= 1000000000;
		}
	}
	return result;
}

static int map_jump(int file) {
	void* place = mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
	if (place == MAP_FAILED) return -1;
	jump_ns = place;
	return 0;
}

static uintptr_t install(uintptr_t kernel) {
	kernel_clock = (int (*)(clockid_t, struct timespec*))kernel;
	return (uintptr_t)jumping_clock;
}
*/
import "C"

import (
	"log"
	"os"
	_ "unsafe" // for go:linkname
)

//go:linkname vdsoClockgettimeSym runtime.vdsoClockgettimeSym
var vdsoClockgettimeSym uintptr

func init() {
	path := os.Getenv("MEMLITH_CLOCK")
	if path == "" {
		return
	}
	file, err := os.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	if result, err := C.map_jump(C.int(file.Fd())); result != 0 {
		log.Fatal(err)
	}
	vdsoClockgettimeSym = uintptr(C.install(C.uintptr_t(vdsoClockgettimeSym)))
}
