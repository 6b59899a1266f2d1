/* Options for tests and benchmarks of this tree. Not installed, and no promise: they may change in any version. */
#ifndef MEMLITH_PRIVATE_OPTIONS_H
#define MEMLITH_PRIVATE_OPTIONS_H

/* For the flags of memlith_store_options: never use direct I/O (O_DIRECT), which the log uses where the file system
 * accepts it. As durable. */
#define MEMLITH_OPEN_BUFFERED 8u

/* For `io` of memlith_store_options: io_uring for every read and write; UNSUPPORTED if the kernel or a sandbox refuses
 * io_uring. */
#define MEMLITH_IO_URING 2u

/* For the flags of memlith_kv_options: the commits of this opening are never logged. After a close or a crash, the kv
 * store is as it was before the opening. Durabilities, tickets and memlith_kv_persist return at once and promise
 * nothing. A benchmark measures with it the cost of durability. */
#define MEMLITH_KV_VOLATILE (1u << 8)

#endif
