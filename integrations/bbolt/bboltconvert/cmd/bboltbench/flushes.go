package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// flushesOf is the number of flushes that the disk of a folder has done, those of other programs too; false: the kernel
// does not tell, as of an overlay or of btrfs.
func flushesOf(folder string) (int64, bool) {
	var stat syscall.Stat_t
	if syscall.Stat(folder, &stat) != nil {
		return 0, false
	}
	major, minor := stat.Dev>>8&0xfff, stat.Dev&0xff|stat.Dev>>12&0xfff00
	device, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", major, minor))
	if err != nil {
		return 0, false
	}
	if _, err := os.Stat(filepath.Join(device, "partition")); err == nil {
		device = filepath.Dir(device) // flushes are counted for the whole disk
	}
	text, err := os.ReadFile(filepath.Join(device, "stat"))
	fields := strings.Fields(string(text)) // Documentation/block/stat.rst; flushes are the 16th, since Linux 5.5
	if err != nil || len(fields) < 16 {
		return 0, false
	}
	count, err := strconv.ParseInt(fields[15], 10, 64)
	return count, err == nil
}
