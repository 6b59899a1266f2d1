/* memlith: memory that survives crashes. The C interface.
 *
 * A store keeps regions. A region is memory at a fixed address that the program uses like any other memory.
 * memlith_persist() makes the changes to regions durable, all of them or none. After a crash, opening the store brings
 * every region back to the state of one and the same persist, which is the last acknowledged one or a later one.
 *
 *     memlith_store_options options = {.struct_size = sizeof options, .flags = MEMLITH_OPEN_CREATE};
 *     memlith_region_options layout = {.struct_size = sizeof layout, .flags = MEMLITH_CREATE, .size = 1 << 20};
 *     memlith_store* store = NULL;
 *     memlith_region* region = NULL;
 *     if (memlith_store_open("notes", &options, &store) != 0) return;
 *     if (memlith_region_open(store, "main", &layout, &region) != 0) return;
 *     uint64_t* runs = memlith_region_address(region);
 *     ++*runs;                                                              // plain memory
 *     if (memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS) != 0) return;  // durable, all or nothing
 *     if (memlith_store_close(store) != 0) return;
 *
 * HEADERS. This one includes the first four. Each header begins with a program in ten lines.
 *   status.h       codes and messages of failures
 *   store.h        stores: opening, closing, statistics, checks
 *   region.h       memory: regions, persist, rollback, snapshots
 *   transaction.h  changes that are committed together or undone
 *   heap.h         blocks and named objects in a region
 *   kv.h           a transactional key-value store
 *   applog.h       a log of a program's operations
 *   shared.h       regions that several processes write
 *   files.h        failure-atomic files: mmap and msync
 *   copy.h         a copy of a store, and a check of its data
 *   archive.h      archives, states of earlier times, standbys
 *   sqlite_file.h  SQLite databases: whether a file is complete by itself
 *   track.h        instrumented code
 *
 * CONVENTIONS
 *  - Every function that can fail returns 0 (MEMLITH_OK) or a code. The low byte of the code is the category
 *    (status.h); the next byte says what the failure concerns. Compare codes with memlith_category(code).
 *    memlith_last_error() returns the message.
 *  - Out-parameters come last and stay unchanged on error. Sizes and offsets are in bytes, as uint64_t.
 *  - Option structs start with struct_size. Set struct_size to sizeof the struct and zero the rest: each field that is
 *    0 has a sensible default. A null pointer selects all defaults.
 *  - Handles are opaque. Any thread may call any function, unless the function says otherwise. Opening or closing
 *    an object while another thread uses the same object is an error of the program.
 *  - "Durable" means: survives kill -9, a kernel crash and power loss, provided that the disk keeps what was written
 *    before a flush that it acknowledged. docs/guarantees.md states exactly what is assumed and what is promised.
 *  - docs/glossary.md explains the terms.
 */
#ifndef MEMLITH_MEMLITH_H
#define MEMLITH_MEMLITH_H

#include "memlith/region.h"
#include "memlith/status.h"
#include "memlith/store.h"
#include "memlith/transaction.h"

#endif
