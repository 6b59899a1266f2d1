// A memlith that forgets to flush, for proving that the rig notices: linked into a program or preloaded, these stand
// before the C library's. Writes still reach the disk, and its cache; nothing asks it to keep them.
#include <unistd.h>

extern "C" int fdatasync(int /*descriptor*/) { return 0; }
extern "C" int fsync(int /*descriptor*/) { return 0; }
