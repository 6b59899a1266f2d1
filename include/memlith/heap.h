/* memlith: a heap in a region. The C interface; memlith/heap.hpp is the C++ one. Conventions: memlith.h. Guide:
 * docs/heap.md.
 *
 *     memlith_region_options options = {.struct_size = sizeof options, .flags = MEMLITH_CREATE};
 *     memlith_type list = {.struct_size = sizeof list, .name = "list", .size = sizeof(void*), .alignment = 8};
 *     memlith_heap* heap = NULL;
 *     void *block = NULL, *first = NULL;
 *     if (memlith_heap_open(store, "heap", &options, &heap) != 0) return;
 *     if (memlith_heap_root(heap, &list, &first) != 0) return;  // zeros in the first run, found again later
 *     if (memlith_heap_allocate(heap, 64, 0, &block) != 0) return;
 *     memcpy(block, first, sizeof(void*));                      // the new block leads to the one before
 *     memcpy(first, &block, sizeof block);
 *     if (memlith_heap_persist(heap) != 0) return;              // durable, all or nothing
 *
 * Blocks of a heap are memory of a region: a program stores into a block, and a persist makes the stores and the
 * allocation durable together. After a crash the heap is as of one persist: a block that was allocated and not
 * persisted is free again, a block that was freed and not persisted is there again.
 *
 * THREADS: all calls but open and close may be made by any thread. A persist or a rollback waits for the allocations
 * under way, so that no allocation is half durable. Threads that share data follow docs/threads.md.
 *
 * Threads with data of their own can persist by themselves (MEMLITH_SCOPE_THREAD) in a heap that is opened with
 * MEMLITH_REGION_THREAD_SCOPE; in another heap that is MEMLITH_UNSUPPORTED. Such a persist has what its thread stored,
 * allocated and freed since its last one, and nothing of that of another thread. Each thread allocates from pages of
 * its own. What threads must not do between two persists:
 *   - Store to one page, with the tracker FAULT, which knows threads by page. A thread stores to the blocks that it
 *     allocated itself; blocks that one thread allocated, in this run or an earlier one, share pages with each other
 *     only, so give all of them to one thread.
 *   - Store to a block that another thread has stored to and not persisted: the other thread persists first.
 * Any thread may free any block. The room is used again when the thread that freed the block has persisted, and at
 * once by the thread that allocated it, if that is the same. What a thread did and did not persist before it ended is
 * left for a persist of process scope. Names change with persists of process scope: after a name was given or taken
 * away, persists of thread scope are MEMLITH_BUSY until there was one. A rollback has process scope only.
 */
#ifndef MEMLITH_HEAP_H
#define MEMLITH_HEAP_H

#include "memlith/memlith.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct memlith_heap memlith_heap;

/* Opens the heap in region `name`, which must not be open otherwise; `options` are those of the region. With
 * MEMLITH_CREATE a region that is missing is made (size 0: 1 MiB), and a heap in it; the heap is durable with
 * its first persist. The heap grows its region up to max_size. A heap that exists keeps its limit, and is given a
 * larger one if a larger max_size is asked for: durable on return. In a store of one file (memlith_file_open) the name
 * is "file"; the heap is mapped where it was made. Opening reads the heap's header and its table, 8 bytes a MiB;
 * everything else is read when it is first used. Errors: as memlith_region_open; NOT_FOUND - also where the region is
 * there and nothing was persisted in it: set MEMLITH_CREATE. INCOMPATIBLE - the region holds something else, or
 * a heap of another format; CORRUPT - the header or the table was stored over; INVALID - the region may not grow to
 * what a heap needs, or the larger max_size has no room for the table that it needs. */
MEMLITH_API int32_t memlith_heap_open(memlith_store* store, const char* name, const memlith_region_options* options,
                                      memlith_heap** heap);

/* Closes the heap and its region. Stores since the last persist are dropped. Closing the store does the same. Null is
 * ignored. */
MEMLITH_API int32_t memlith_heap_close(memlith_heap* heap);

/* The heap's region: for memlith_persist_async, memlith_rollback, memlith_region_get_info and persisting with other
 * regions. The heap owns it: do not close it. Null for null. */
MEMLITH_API memlith_region* memlith_heap_region(memlith_heap* heap);

/* The open heap of this process in whose region the address lies; null if there is none. Takes nanoseconds. */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((access(none, 1))) /* what lies there is not looked at, and may be uninitialised */
#endif
MEMLITH_API memlith_heap*
memlith_heap_of(const void* address);

/* The heap that memory comes from where a program names none (the default constructor of memlith::allocator): the one
 * that this thread named with memlith_heap_use, else the only one that is open in the process, else null. */
MEMLITH_API memlith_heap* memlith_heap_current(void);

/* From now on `heap` is the calling thread's current heap; null: none is named. Returns what was named before. Name
 * another one before the heap is closed. */
MEMLITH_API memlith_heap* memlith_heap_use(memlith_heap* heap);

/* Allocates at least `bytes`, at a multiple of `alignment`: a power of two up to 4096, or 0 for 16. The block's content
 * is arbitrary. Durable with the next persist.
 * Errors: NO_SPACE - the region is at its max_size or the disk is full; nothing changed. CORRUPT - a structure that was
 * to be used was stored over; nothing changed. INVALID (alignment), READ_ONLY, POISONED, NO_MEMORY. */
MEMLITH_API int32_t memlith_heap_allocate(memlith_heap* heap, uint64_t bytes, uint64_t alignment, void** block);

/* Frees a block. Null is ignored. Durable with the next persist. After a failed persist it is harmless: nothing reaches
 * the disk any more. Errors: INVALID - no block in use begins there, for one because it was freed before; nothing
 * changed. CORRUPT, READ_ONLY. */
MEMLITH_API int32_t memlith_heap_free(memlith_heap* heap, void* block);

/* How many bytes the block has, at least as many as were asked for. Errors: as memlith_heap_free. */
MEMLITH_API int32_t memlith_heap_block_bytes(memlith_heap* heap, const void* block, uint64_t* bytes);

/* The stored description of a named object's type. All four are compared when the object is asked for. */
typedef struct memlith_type {
  uint64_t struct_size; /* set by the caller */
  const char* name;     /* up to 1023 bytes */
  uint64_t size;
  uint32_t alignment;
  uint32_t layout; /* another number for another meaning of the bytes; the C++ interface makes it of the members */
} memlith_type;

/* Gives the block that begins at `object` a name, up to 255 bytes. "" is the name of the root. Durable with the next
 * persist. Errors: EXISTS, INVALID (no block, or one smaller than the type), and those of memlith_heap_allocate. */
MEMLITH_API int32_t memlith_heap_set_name(memlith_heap* heap, const char* name, const void* object,
                                          const memlith_type* type);

/* Gives the name to another object, which may be of another type. The object that had the name stays. Durable with the
 * next persist. Errors: NOT_FOUND, and those of memlith_heap_set_name; nothing changed. */
MEMLITH_API int32_t memlith_heap_replace(memlith_heap* heap, const char* name, const void* object,
                                         const memlith_type* type);

/* Finds a named object. `type` may be null: any. So may the type's name: then size, alignment and layout are compared.
 * Errors: NOT_FOUND; INCOMPATIBLE - of another type, the message names both; CORRUPT. */
MEMLITH_API int32_t memlith_heap_find(memlith_heap* heap, const char* name, const memlith_type* type, void** object);

/* Takes the name away; the object stays. Durable with the next persist. Errors: NOT_FOUND, CORRUPT, READ_ONLY. */
MEMLITH_API int32_t memlith_heap_remove_name(memlith_heap* heap, const char* name);

/* Calls `each` for every named object, in no particular order, with its name and the stored description of its type,
 * which are valid during the call. The root's name is "". Names that `each` gives are not seen.
 * For tools; a program finds its objects by name. Errors: CORRUPT. */
MEMLITH_API int32_t memlith_heap_for_each(memlith_heap* heap,
                                          void (*each)(void* context, const char* name, const memlith_type* type,
                                                       void* object),
                                          void* context);

/* The one object on which everything else hangs: found, or made of zeros when it is first asked for. Errors: as
 * memlith_heap_find and memlith_heap_allocate. */
MEMLITH_API int32_t memlith_heap_root(memlith_heap* heap, const memlith_type* type, void** root);

/* Makes the heap and everything in it durable, all or nothing: memlith_persist of its region with process scope. */
MEMLITH_API int32_t memlith_heap_persist(memlith_heap* heap);

/* Where the bytes of a heap are. */
typedef struct memlith_heap_report {
  uint64_t struct_size;  /* set by the caller */
  uint64_t region_bytes; /* = the four below, and less than a page that a file has beyond its last whole page */
  uint64_t header_bytes; /* structures of the heap */
  uint64_t block_bytes;  /* blocks in use */
  uint64_t slab_bytes;   /* room for small blocks, in pages that have some */
  uint64_t free_bytes;   /* whole pages */
  uint64_t blocks;       /* in use, those that hold names included */
  uint64_t names;
} memlith_heap_report;

/* Checks every structure of the heap, and that the structures account for every byte of the region. Reads them all;
 * other threads' calls wait. Containers of memlith/btree.hpp and memlith/flat_hash.hpp that this process uses are read
 * as well, without their owners' locks: no thread changes them meanwhile. `report` may be null.
 * Errors: CORRUPT - the message names the place. */
MEMLITH_API int32_t memlith_heap_verify(memlith_heap* heap, memlith_heap_report* report);

/* Looks for blocks to which nothing leads, in the heaps of a store that is closed, or whose process was killed, and
 * calls `found` for each: the region's name, the block's offset in the region, and its bytes. Such blocks are what a
 * program held outside of the heap (a local memlith::string) when a persist captured them and the program was killed
 * before it had freed them. No thread frees them any more.
 * A block is kept by a name; by any eight bytes, wherever they lie, in a block that is kept or in another region of the
 * store, whose value is an address in the block, or at its end; and by a word that leads to its beginning as a distance
 * from the word's own address (boost::interprocess::offset_ptr). So a number may keep a block that nothing owns.
 * Changes nothing. If a process has the store open, what it holds by itself is found, too. Errors: as
 * memlith_verify. */
MEMLITH_API int32_t memlith_verify_leaks(const char* path,
                                         void (*found)(void* context, const char* heap, uint64_t offset,
                                                       uint64_t bytes),
                                         void* context);

enum { MEMLITH_PLAIN_POINTERS = 1 };

/* Frees these blocks, in one commit, and then calls `freed`, which may be null, for each. The store must not be open.
 * `promise` is MEMLITH_PLAIN_POINTERS: the caller says that what is needed can be found in the way described above. It
 * cannot where pointers are compressed, combined with each other (XOR lists), or carry bits in their upper bytes; where
 * offset pointers lead to the inside of blocks; or where another store or a file leads into the heaps.
 * Durability: durable on 0. After a crash during this call all of the blocks are free or none.
 * Errors: INVALID - without the promise; those of memlith_store_open, of memlith_heap_verify and of memlith_persist.
 * Nothing was freed then; after IO, all or nothing. */
MEMLITH_API int32_t memlith_collect_leaks(const char* path, uint32_t promise,
                                          void (*freed)(void* context, const char* heap, uint64_t offset,
                                                        uint64_t bytes),
                                          void* context);

#ifdef __cplusplus
}
#endif

#endif
