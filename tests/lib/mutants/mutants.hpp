// Mutants: one deliberate mistake each in the engine or a plugin, such as a flush left out. A test that does not notice
// is a test that is missing.
//
// The product's text has nothing of them. The patches beside this file put them into a copy that only tests build, and
// that has this header at the head of each file it changes; patches.py tells how to edit them. One mutant at a time is
// switched on. docs/testing.md, "Mutants".
#pragma once

#include <cstdint>

// X(name, floor, what it does)
// clang-format off
// Those that only leave out or reorder writes and flushes. The laboratory does that between the engine and the disk
// (tests/lib/lab/mutant_volume.hpp).
#define MEMLITH_DEVICE_MUTANT_LIST(X)                                                                              \
  X(skip_log_flush, log, "a batch is acknowledged without a flush")                                                \
  X(skip_log_write, log, "a batch is flushed without having been written")                                         \
  X(flush_before_write, log, "a batch is flushed first and written then")                                          \
  X(acknowledge_before_flush, log, "a batch is acknowledged first and flushed then")                               \
  X(failed_write_acknowledged, log, "a batch whose write or flush failed is acknowledged")                         \
  X(failed_flush_retried, log, "a failed flush is tried again, and success believed")                              \
  X(write_through_not_forced, device, "a write that is to be durable by itself stays in the disk's cache")          \
  X(stream_not_flushed, log, "a streamed frame is acknowledged without a flush")                                   \
  X(stream_end_after_flush, log, "the last chunk of a streamed frame is written behind the flush")                 \
  X(stream_end_not_waited, log, "a streamed frame is flushed while its last chunks are still on their way")        \
  X(stream_end_waited_late, log, "the last chunks of a streamed frame are waited for behind the flush")            \
  X(stream_buffer_used_early, log, "a chunk is filled while the one before it in the buffer is on its way")        \
  X(log_read_not_waited, log, "the log is looked at before the transfer from it has arrived")                      \
  X(stream_without_slot_headers, log, "a streamed frame that enters a slot does not say so in its header")         \
  X(batch_without_slot_headers, log, "a batch that enters a slot does not say so in its header")                   \
  X(superblock_not_flushed, log, "a superblock is not flushed")                                                    \
  X(superblock_copies_at_once, log, "the second superblock copy is written before the first is flushed")           \
  X(blocks_not_flushed, store, "parts of blocks are written home before the whole blocks, which are kept, are flushed")
// Those that the laboratory kills.
#define MEMLITH_MUTANT_LIST(X)                                                                                     \
  MEMLITH_DEVICE_MUTANT_LIST(X)                                                                                    \
  X(flushes_side_by_side, device, "two threads flush a device at the same time")                                   \
  X(lines_not_fenced, device, "a write of lines returns without a fence")                                          \
  X(last_line_left_in_cache, device, "the last line of a write of lines stays in the cache")                       \
  X(rest_of_line_lost, device, "a line that a write fills in part loses its other bytes")                          \
  X(last_piece_written_through, log, "of a batch in two slots only the last piece is durable when it is told so")  \
  X(acknowledge_next_batch, log, "a batch that is done acknowledges the one in flight behind it")                  \
  X(complete_out_of_order, log, "a batch is acknowledged before the one in front of it is done")                   \
  X(poisoned_log_goes_on, log, "after a failed write the log takes and acknowledges more")                         \
  X(two_streams_at_once, log, "a frame is streamed while another one is")                                          \
  X(stream_beyond_in_flight_max, log, "a frame is streamed although as many batches as may be are in flight")      \
  X(first_claim_counts, log, "of two slots that claim a segment the first counts, not the later one")              \
  X(skip_payload_checksum, log, "a frame counts whatever its payload")                                             \
  X(payload_of_any_incarnation, log, "the header of a torn frame vouches for the payload of a lost one")           \
  X(earlier_incarnation_taken, log, "a frame counts although the log was opened anew before its place")            \
  X(constant_incarnation, log, "an open does not begin a new incarnation")                                         \
  X(skip_superblock_checksum, log, "a superblock is believed whatever its checksum")                               \
  X(one_superblock_copy, log, "the superblock is always written over the same copy")                               \
  X(superblock_copies_in_turn, log, "a new superblock is written to one of the two copies, in turn")               \
  X(start_over_unflushed_copy, log, "an opening writes over a superblock copy while the other may be unflushed")   \
  X(tail_too_far, log, "a trim moves the tail one block too far")                                                  \
  X(trim_not_written, log, "a trim frees slots without writing the new tail")                                      \
  X(trim_frees_live_slot, log, "a trim frees the slot in which the tail stands")                                   \
  X(growth_not_durable, log, "new slots are counted in the superblock before the file is that long")               \
  X(log_cut_early, log, "a close cuts off slots that the superblock still counts")                                 \
  X(cut_log_goes_on_in_lost_slot, log, "a close cuts off the slot in which the log goes on")                       \
  X(durable_lsn_not_told, log, "frames do not say how far the log was durable")                                    \
  X(no_check_for_damage, log, "recovery takes any end of the chain for a torn one")                                \
  X(unproven_frames_believed, log, "recovery believes frames that only the page cache may have")                   \
  X(frames_moved_in_place, log, "a recovery writes frames again over themselves")                                  \
  X(moved_frames_claimed_early, log, "a slot claims the frames moved to it before they are flushed")               \
  X(moved_frames_not_ended, log, "what stood behind the frames in the slot they move to stays there")              \
  X(frames_moved_under_old_tail, log, "frames are moved to slots that only an unflushed tail calls free")          \
  X(log_formatted_late, log, "a new log gets its name before its superblock is flushed")                           \
  X(waiter_looks_late, log, "a committer looks what to wait for after it let go of the lock")                      \
  X(tail_moved_outside_lock, log, "a trim moves the tail in memory after it let go of the lock for superblocks")   \
  X(growth_sized_outside_lock, log, "a growing log asks how large it is before it has the lock for it")            \
  X(refusal_wakes_nobody, log, "a commit that waits for room is not told that none could be made")                 \
  X(durable_told_before_flush, log, "how far the log is durable is told between the write and the flush")          \
  X(pack_sealed_under_writers, log, "a packed frame is sealed while its payloads are still being copied")          \
  X(map_copies_at_once, device, "the copies of a raw device's map are written without a flush in between")         \
  X(command_not_forced, device, "a command to an NVMe device lacks the bit that makes its write durable")         \
  X(cache_not_flushed, device, "an NVMe device with a volatile cache gets no flush")                              \
  X(rest_of_block_lost, device, "a write that fills a block in part loses its other bytes")                       \
  X(mapped_pages_not_written, device, "a write to an NVMe device does not reach the pages that are mapped")       \
  X(packed_commits_dropped, store, "of the commits in one frame only the first is replayed")                       \
  X(home_not_flushed_by_checkpoint, store, "a checkpoint gives frames up without having flushed the homes")        \
  X(written_home_not_flushed, store, "a checkpoint frees what was written home before it without a flush")         \
  X(home_not_flushed_by_recovery, store, "a recovery gives frames up without having flushed the homes")            \
  X(trim_before_homes, store, "a checkpoint moves the tail first and writes the homes then")                       \
  X(idle_frees_before_homes, store, "a checkpoint of an idle store frees log before home is durable")              \
  X(idle_piece_frees_all, store, "a piece of an idle store's checkpoint frees the frames behind it, too")          \
  X(checkpoint_beyond_durable, store, "a checkpoint writes home what is written to the log but not flushed")       \
  X(checkpoint_forgets_home, store, "a checkpoint that flushed homes on its way does not flush the rest of them")  \
  X(unproven_pieces_written_home, store, "a recovery by pieces writes home what nothing proves durable yet")       \
  X(cached_length_believed, store, "a file's length that is right is taken for a durable one")                     \
  X(blocks_taken_for_sectors, store, "a store for large physical blocks lays its frames out in sectors")           \
  X(recovered_blocks_written_over, store, "a recovery writes over the blocks that it may still need")               \
  X(moments_not_compared, store, "a file and a log of two moments are taken for a pair")                            \
  X(moment_not_told_before_home, store, "homes are written before the file says what is on its way there")          \
  X(moment_not_told_behind_home, store, "a checkpoint does not say what the file holds by then")                    \
  X(torn_moment_believed, store, "a moment that the crash tore is taken for one of another log")                    \
  X(moment_not_flushed, store, "the moment of the file is not flushed")                                             \
  X(in_use_header_not_home, store, "a file is committed to before its in-use header is there")                     \
  X(in_use_header_ends_too_early, store, "a file loses its in-use header while commits are in the log only")       \
  X(holes_left, store, "a sparse file is opened without room for its holes")                                        \
  X(snapshot_of_old_homes, store, "a snapshot copies homes without a checkpoint before it")                         \
  X(blocks_not_kept, store, "parts of blocks are written home without the blocks having been kept whole")          \
  X(direct_home_not_waited, store, "a recovery does not wait for what it writes past the page cache")              \
  X(checkpoint_misses_last_frame, store, "a checkpoint stops one frame early but moves the tail past it")          \
  X(recovery_misses_first_frame, store, "a recovery does not apply the first frame")                               \
  X(view_misses_first_frame, store, "a read-only opening does not apply the first frame")                          \
  X(bytes_over_the_end_dropped, store, "of bytes over the end of a file that was cut none are written home")       \
  X(last_extent_dropped, store, "the last extent of a commit is not replayed")                                     \
  X(extents_reversed, store, "the extents of a commit are applied in reverse order")                               \
  X(first_version_wins, store, "of two versions of the same bytes the older one is written home")                  \
  X(unlink_before_checkpoint, store, "an object's file is removed while frames still name it")                     \
  X(home_created_unflushed, store, "a new object's file is named before its length is flushed")                    \
  X(home_created_unsynced, store, "a new object is named before the folder of its file is flushed")                \
  X(store_renamed_unsynced, store, "a new store is used before the folder with its log's name is flushed")         \
  X(home_grown_unflushed, store, "a home grows without a flush before a frame refers to the new part")             \
  X(size_not_logged, store, "a new size is not part of the commit that needs it")                                  \
  X(wrong_live_count, store, "the directory's count of objects is not lowered by a removal")                       \
  X(directory_header_not_logged, store, "a creation commits its entry without the directory's header")             \
  X(truncate_not_flushed_by_close, store, "a file is closed as clean before its new length is flushed")            \
  X(truncate_not_flushed_by_open, store, "an unpersisted growth is undone at open without a flush")                \
  X(close_without_checkpoint, store, "a store is closed as clean with commits in the log only")                    \
  X(failed_checkpoint_goes_on, store, "a checkpoint that failed does not poison the store")                        \
  X(lack_poisons, store, "a checkpoint that lacks memory poisons the store")                                       \
  X(late_waiter_forgotten, store, "a checkpoint that is done forgets who came to wait for room meanwhile")         \
  X(stop_told_outside_lock, base, "the threads in the background are told to end without their lock")              \
  X(collectors_closed_apart, store, "what waits in several structures goes to the log in a frame for each")        \
  X(set_aside_not_waiting, store, "what a closing has set aside does not count as waiting until it is in the log")   \
  X(head_before_hold, store, "a ticket's place in the log is read before the durable ticket is held back")          \
  X(tickets_not_held_back, store, "a ticket counts as durable when the log is durable up to there")                \
  X(tickets_between_places, store, "tickets that are set aside are held back nowhere for a moment")                \
  X(flusher_ends_without_a_look, store, "the flusher ends without a last look at what it shall make durable")      \
  X(stored_dropped_when_full, region, "a persist that did not fit forgets what was stored")                        \
  X(wrong_scope, region, "a persist of one thread's stores takes everybody's")                                     \
  X(page_of_other_thread_taken, region, "a persist of one thread's pages takes those of others")                   \
  X(page_of_thread_forgotten, region, "a persist of one thread's pages leaves some of them out")                   \
  X(hint_replaces_fault, region, "behind an announcement, a store that was not announced is let through unnoted")   \
  X(neighbours_opened_unmarked, region, "pages that are opened with a page that was stored to do not count as dirty") \
  X(stores_before_handover_lost, region, "a tracker that takes another's place forgets what that had not collected") \
  X(handover_trusts_newer_twin, region, "such a tracker compares those pages with what they are now")              \
  X(change_begins_uncaptured, region, "a change begins without what was stored before it having been captured")    \
  X(change_captured_inside, region, "others may capture a change that is under way")                               \
  X(change_not_undone, region, "the undoing of a change leaves memory as it is")                                   \
  X(rollback_forgotten, region, "a rollback leaves the memory as it is")                                           \
  X(rollback_reads_home_only, store, "a rollback does not look for what is in the log and not home")               \
  X(persist_of_first_region_only, region, "a persist of several regions commits the first one's bytes only")       \
  X(persist_does_not_join, region, "a persist with nothing of its own does not wait for what is under way")        \
  X(persist_does_not_wait, region, "a persist returns before its commit is durable")                               \
  X(region_size_not_persisted, region, "a persist leaves the region's new size out")                               \
  X(region_mapped_out_of_date, region, "a region is mapped without the commits that are in the log only")          \
  X(last_range_forgotten, region, "a persist leaves out the last range that was stored to")                        \
  X(rest_of_range_forgotten, region, "a persist of a part of a region forgets what else was stored")               \
  X(transaction_range_forgotten, region, "a transaction commits all but the last range that it announced")         \
  X(transaction_without_size, region, "a transaction commits bytes beyond the size that the log knows")            \
  X(transaction_not_noted, region, "a region is mapped without a transaction that is in the log only")             \
  X(joint_region_forgotten, region, "a transaction commits its other parts without a region's stores")             \
  X(joint_commit_in_two, region, "the parts of a transaction go to the log in two frames")                         \
  X(abort_oldest_image_last, region, "an abort restores a range that was announced twice to its second image")     \
  X(discard_not_replayed, store, "replay leaves discards out")                                                       \
  X(discard_keeps_memory, region, "after a discard the memory is as it was")                                         \
  X(twin_not_renewed, region, "a page goes on being compared with what it was before the last capture")            \
  X(home_twin_too_old, region, "a page is compared with a home that lacks what was captured last")                  \
  X(changed_pages_released, region, "a release for the memory limit drops pages that differ from home")             \
  X(hot_pages_not_compared, region, "pages that nearly every persist finds stored to are left out")                 \
  X(hot_twin_not_renewed, region, "a hot page goes on being compared with what it was when it became hot")          \
  X(hot_twin_renewed_when_full, region, "of a hot page, a persist that did not fit is what the next is compared to") \
  X(twin_renewed_when_full, region, "a persist that did not fit counts as what the next one is compared with")     \
  X(bytes_beyond_the_end, region, "a persist commits the rest of the last page beyond the end of a file")          \
  X(record_cut_short, region, "of stores to consecutive bytes only the first is recorded")                         \
  X(record_lost_in_full_list, region, "a thread's list of stored ranges is emptied when it is full, and forgotten") \
  X(record_of_ended_thread_lost, region, "what a thread recorded is forgotten when the thread ends")               \
  X(record_of_other_thread_lost, region, "a refused persist's ranges of others are lost in a thread's next one")   \
  X(heap_header_not_captured, heap, "the header of a new heap is stored and not captured")                         \
  X(heap_block_not_captured, heap, "the bit of a block that is allocated is not captured")                         \
  X(heap_free_not_captured, heap, "the bit of a block that is freed is not captured")                              \
  X(heap_segment_not_written, heap, "a segment comes into use without its entry in the table")                     \
  X(heap_large_block_half_written, heap, "of a block of several segments only the first has an entry")             \
  X(heap_slab_freed_early, heap, "a slab is given back with a block in use")                                       \
  X(heap_extent_not_cleared, heap, "a block of pages is freed, and its pages stay marked")                         \
  X(heap_growth_forgotten, heap, "what a growth adds to the last segment is not used")                             \
  X(heap_moved_table_not_captured, heap, "the entries of a segment table that moves are not captured")              \
  X(heap_old_table_kept, heap, "the segments of a table that has moved again stay those of a table")               \
  X(heap_names_out_of_order, heap, "a name is put in front of a record that does not lead back to it")             \
  X(heap_name_counted_twice, heap, "a name that is taken away is still counted")                                   \
  X(heap_inside_of_blocks_not_reached, heap, "only pointers to a block's beginning keep it from being collected")   \
  X(heap_rollback_not_noticed, heap, "after a rollback the heap goes on with what it remembered")                  \
  X(heap_derived_kept, heap, "what was derived from a heap counts beyond a rollback")                               \
  X(heap_captured_unlocked, heap, "a capture does not wait for allocations that are under way")                    \
  X(heap_changes_of_other_thread_taken, heap, "a persist of one thread has what others allocated and freed")       \
  X(heap_changes_of_thread_left_out, heap, "a persist of one thread lacks what it allocated and freed")            \
  X(heap_structures_left_out, heap, "a persist of one thread lacks what others did to structures")                 \
  X(heap_overlap_not_noticed, heap, "verify does not see that two runs of pages overlap")                          \
  X(heap_bits_not_checked, heap, "verify does not see bits of blocks where there are none")                        \
  X(cut_off_bytes_come_back, files, "a commit of a part of a file that has grown again leaves the rest as it was")  \
  X(regrown_pages_not_in_range_committed, files, "such a commit takes pages outside of its range")                 \
  X(guarded_page_not_copied, files, "the image of a guarded file has the in-use header in its first page")         \
  X(guarded_page_dropped, files, "a rollback drops the first page of a guarded file, which is not the file's")     \
  X(growth_before_guard, files, "a guarded file grows before it begins with the in-use header")                    \
  X(earlier_commits_not_flushed, files, "a common commit is decided before what its files committed before it")    \
  X(common_part_before_decision, files, "a file's own log has its part of a common commit before the decision")    \
  X(common_bytes_not_copied, files, "what is stored during a common commit is in the file's own log only")         \
  X(common_commit_not_flushed, store, "the logs of files get a common commit before it is flushed")                \
  X(common_frames_freed_early, store, "common commits are forgotten before the logs of their files are flushed")   \
  X(common_log_not_named, store, "a file is committed together with others before its log names the common log")  \
  X(common_commits_dropped, store, "a recovery drops the common commits that a file's own log lacks")              \
  X(common_log_left_early, store, "a recovered file leaves the common log before its own has everything")          \
  X(common_length_cut, store, "a recovery cuts a file to the length that its own log knows")                       \
  X(unproven_common_commits, store, "a recovery takes common commits that only the page cache may have")           \
  X(stale_bytes_after_growth, files, "an image that grows again has the bytes that it had there before")           \
  X(kept_holes_not_noted, store, "commits into the holes that a file keeps do not reserve their space")            \
  X(half_made_not_noticed, region, "a region in which nothing was made counts as one that holds something else")     \
  X(dead_bytes_early, store, "a checkpoint leaves out what a commit gave up that it does not reach")               \
  X(dead_bytes_late, store, "a checkpoint leaves out what lies where an earlier commit gave bytes up")             \
  X(applog_reused_given_up, applog, "bytes that were given up stay so when an entry lies on them again")           \
  X(applog_reused_early, applog, "the bytes of an entry that was read are used again before it is consumed")        \
  X(applog_position_apart, applog, "the read position moves in a frame of its own, not in that of its transaction") \
  X(applog_end_not_marked, applog, "a write of entries does not bring the end mark behind them")                   \
  X(applog_wrap_cut, applog, "of entries that lie across the end of the ring only the first part is logged")       \
  X(applog_growth_not_moved, applog, "a log grows, and the entries behind the wrap stay at its beginning")         \
  X(applog_cut_in_memory, applog, "entries are truncated in memory, and no frame says so")                         \
  X(applog_restart_in_two, applog, "a restarted log has its position and its end mark in frames of their own")     \
  X(kv_copy_apart_from_word, kv, "a page's copy for snapshots is kept first, and the page's stamp changed then")    \
  X(kv_frame_without_header, kv, "of a batch that is split only the last frame has the kv store's header")         \
  X(kv_refused_batch_dropped, kv, "a batch for which the log has no room is forgotten")                           \
  X(kv_refusal_not_counted, kv, "commits are taken although the log had no room for those before them")            \
  X(connection_unlocks_early, connection, "a connection releases the write lock before its commit is captured")    \
  X(connection_acknowledges_early, connection, "a connection's commit returns before its flush")                   \
  X(connection_reads_early, connection, "a connection returns what it read before that is durable")
// Those that break the isolation of a kv store. The isolation checker of tests/isolation looks for them, not the
// laboratory, whose oracle knows crashes.
#define MEMLITH_ISOLATION_MUTANT_LIST(X)                                                                            \
  X(kv_gaps_not_locked, kv, "a scan locks nothing")                                                                \
  X(kv_read_locks_released_early, kv, "a transaction lets the lock of a read go with its next read")               \
  X(kv_dirty_read, kv, "a read finds what another transaction has not committed yet")                              \
  X(kv_lost_update, kv, "a write does not look at the records that others have read")                              \
  X(kv_reads_not_validated, kv, "the keeper commits a proposal, whatever has become of the records that it read")     \
  X(kv_ranges_not_validated, kv, "the keeper commits a proposal, whatever has come into the ranges that it read")     \
  X(kv_view_of_unfinished, kv, "a snapshot that is taken during a commit is of the state that the commit makes")      \
  X(kv_page_left_to_its_file, kv, "a snapshot's page shows what a checkpoint writes to its file")                  \
  X(kv_run_freed_too_early, kv, "pages of a long value are used again while a snapshot may look at the value")       \
  X(kv_run_overwritten_under_a_view, kv, "a long value is changed in place while a snapshot may look at it")        \
  X(kv_removal_beside_readers, kv, "a range is removed although others have read in it")                           \
  X(kv_place_not_looked_at, kv, "a commit writes where its transaction has read, whatever has changed")             \
  X(kv_subtree_too_many, kv, "a removed range takes a page along that has other records")                          \
  X(kv_removed_list_not_logged, kv, "the list of removed pages is in memory only")                                 \
  X(kv_removed_list_forgotten, kv, "an opening drops the list of removed pages")                                   \
  X(kv_snapshot_moves, kv, "a read-only transaction sees the newest state, not that of its beginning")
// Those of readers beside a writer, and of what tells rot, which tests/readers looks for.
#define MEMLITH_READER_MUTANT_LIST(X)                                                                               \
  X(copy_home_over_frames, copy, "a copy puts bytes of a home over those of frames that it has put before")         \
  X(copied_files_taken, store, "files that were copied one by one from a store in use are opened")                  \
  X(file_birth_kept, log, "a superblock does not say which file it was written to")                                 \
  X(copy_named_unflushed, copy, "a copy gets its name before its files are flushed")                                \
  X(rot_in_touched_blocks, copy, "blocks count as damaged that a frame in the log is about to replace")             \
  X(sums_not_flushed, store, "the tail moves before the sums of what went home are flushed")                        \
  X(sums_not_renewed, store, "a checkpoint writes blocks home and leaves their sums as they were")                  \
  X(sums_before_home, store, "of a block that is written in part, the sum is taken before it is written")           \
  X(torn_sums_believed, store, "a page of sums that a power cut tore counts")                                       \
  X(copy_reads_log_first, copy, "a copy of a store in use reads the log first and the homes then")                  \
  X(durable_not_shown, store, "a checkpoint writes home what its page does not show as durable")                    \
  X(view_believes_all, store, "a reader beside a writer takes frames that are not durable")                        \
  X(view_copies_late, store, "a reader beside a writer reads the log first and copies the homes then")             \
  X(view_of_unflushed_log, store, "a reader of a store whose writer was killed does not flush the log")               \
  X(kv_read_not_waited, kv, "a transaction that only reads tells what is not durable yet")                          \
  X(kv_header_not_compared, kv, "the header of a kv store is not compared with its checksum when the store is opened") \
  X(kv_rest_of_value_not_compared, kv, "of a long value only the first page is compared with its checksum")         \
  X(kv_compared_with_wrong_sum, kv, "all pages of a long value are compared with the checksum of the first")        \
  X(kv_compared_under_the_log, kv, "pages over which the log lies are compared with the checksums of their homes")  \
  X(idle_log_not_marked, store, "a log that is idle gets no frame that vouches for the newest commits")             \
  X(idle_log_marked_once, store, "a log that is idle gets such a frame once, and none for later commits")
// Those of archives, which tests/archive looks for.
#define MEMLITH_ARCHIVE_MUTANT_LIST(X)                                                                              \
  X(archive_believes_all, archive, "a segment is sealed with frames that are not durable")                         \
  X(archive_gap_overlooked, archive, "frames that were overwritten before they were read are passed over")         \
  X(archive_of_unflushed_log, archive, "what a killed writer left unflushed is archived unflushed")                \
  X(archive_time_of_next, archive, "a time counts for what another incarnation committed later")                      \
  X(archive_manifest_first, archive, "the manifest names a segment before the segment is there")                   \
  X(archive_tells_too_early, archive, "the log may reuse frames before the archive has them")                      \
  X(archive_named_unflushed, archive, "a part of an archive gets its name before its content is flushed")          \
  X(archive_name_unflushed, archive, "the name of a part is not durable when the manifest has it")                 \
  X(archive_continues_other_history, archive, "an archive goes on with a store that went back and on from there")  \
  X(chain_goes_on, store, "the log goes on as before with a file that was changed while it was closed")            \
  X(closed_stamp_not_compared, store, "a file that was closed counts as unchanged, whatever was written to it")    \
  X(closed_stamp_left_out, store, "a clean close does not say how the file was then")                              \
  X(log_removed_unread, store, "a close removes the log beside an archiver that lives")                            \
  X(grown_log_cut_unread, store, "a close cuts a grown log with what an archive lacks")                            \
  X(standby_counts_early, archive, "frames count in a standby before they are flushed")
// Those of shared regions and of the floor below them, which tests/shared looks for.
#define MEMLITH_SHARED_MUTANT_LIST(X)                                                                              \
  X(answer_before_durable, shared, "a synchronous commit is acknowledged when it was captured")                    \
  X(undo_left_out, shared, "the ranges of a client that died are released as they are")                            \
  X(release_before_undo, shared, "the ranges of a client that died are released, and undone then")                 \
  X(capture_after_release, shared, "a commit's ranges are released before their bytes are copied")                 \
  X(living_owner_robbed, shm, "a waiter takes the mutex from an owner that lives")                                 \
  X(dead_owner_kept, shm, "the mutex stays with an owner that has died")                                           \
  X(repair_left_out, shm, "the owner behind one that has died finds what that one left")                           \
  X(kv_snapshots_of_dead_kept, processes, "the snapshots of a client that died stay, and keep copies of pages")      \
  X(applog_consumed_not_shown, applog, "readers of other processes are not told that an entry was consumed")         \
  X(applog_changes_not_shown, applog, "readers of other processes are not told that entries were dropped")           \
  X(applog_not_confirmed, processes, "a reader does not look whether an entry lay there while it was copied")
// Those of the SQLite plugin, which its own tests look for; shared_: of mode shared.
#define MEMLITH_SQLITE_MUTANT_LIST(X)                                                                              \
  X(skip_persist, sqlite, "a commit is not waited for")                                                            \
  X(persist_each_write, sqlite, "every write to the database is a commit of its own")                              \
  X(skip_mark, sqlite, "the file looks like a database while its log holds commits")                               \
  X(keep_counter, sqlite, "the file looks like a database to a connection with its first page cached")             \
  X(unmark_too_early, sqlite, "a clean close says so before everything is home")                                   \
  X(believe_cached_head, sqlite, "a file says that it is complete in the page cache only, and its log is removed") \
  X(wal_after_ack, sqlite, "WAL: a commit is durable with the next one")                                           \
  X(skip_commit_wait, sqlite, "WAL: a commit returns before its flush")                                            \
  X(skip_seen_wait, sqlite, "WAL: a COMMIT that changed nothing returns before what it saw is durable")            \
  X(skip_reader_wait, sqlite, "WAL: a reader gets pages of commits in doubt")                                      \
  X(share_pages, sqlite, "WAL: pages are not made private before a commit can change them at home")                \
  X(skip_disk_journal, sqlite, "several databases: journals stay in memory")                                       \
  X(skip_journal_flush, sqlite, "several databases: journals are not on the medium before the commits they undo")  \
  X(skip_super_flush, sqlite, "several databases: what says which they are is not on the medium")                  \
  X(keep_disk_journal, sqlite, "several databases: journals stay when the transaction has ended")                  \
  X(skip_earlier_sync, sqlite, "several databases: weak commits may be lost that a journal has pages of")          \
  X(skip_part_persist, sqlite, "several databases: a part of a weak commit is not waited for")                     \
  X(shared_skip_commit_wait, sqlite, "a commit returns before its flush")                                          \
  X(shared_skip_reader_wait, sqlite, "a reader gets pages of commits in doubt")                                    \
  X(shared_look_after_flush, sqlite, "commits that came during a flush count as flushed")                          \
  X(shared_forget_failure, sqlite, "a failed flush counts as one that succeeded")                                  \
  X(shared_skip_checkpoint_flush, sqlite, "a checkpoint stores pages whose frames are not on the medium")          \
  X(shared_believe_late_descriptors, sqlite, "a flush counts that may not have been told of an earlier failure")   \
  X(shared_forget_promise, sqlite, "a commit that is not waited for is not flushed within its window")             \
  X(shared_due_after_flush, sqlite, "commits that came during the flush of a window count as flushed")             \
  X(shared_never_promise, sqlite, "the oldest that waits is passed over without end")                              \
  X(shared_pass_without_end, sqlite, "threads pass the lock among themselves while another process waits")         \
  X(shared_trust_abandoned, sqlite, "a flush whose leader was killed is not noted")                                \
  X(shared_flush_again, sqlite, "after a failed flush the next one counts")                                        \
  X(shared_made_early, sqlite, "a commit waits for what was the newest one before it")                             \
  X(shared_skip_early_wait, sqlite, "what a transaction read that was rolled back is not waited for")              \
  X(shared_ignore_promise, sqlite, "a connection takes the lock that was promised since it looked")                \
  X(shared_promise_for_ever, sqlite, "the lock is kept for a connection that does not come")                       \
  X(shared_follow_without_look, sqlite, "a follower waits for its leader to wake it")                              \
  X(shared_close_beside_checkpoint, sqlite, "a connection is closed while a checkpoint that it left is under way") \
  X(shared_believe_another_leader, sqlite, "a flush counts while another leader may have been told of a failure")  \
  X(shared_trust_earlier_flush, sqlite, "a flush that began before counts for what was written since")             \
  X(shared_wake_no_leader, sqlite, "no follower is woken for the next flush, and none looks")                      \
  X(shared_never_begin_anew, sqlite, "no commit keeps others from the lock until its checkpoint is made")
// Those of the PostgreSQL plugin, likewise.
#define MEMLITH_POSTGRES_MUTANT_LIST(X)                                                                            \
  X(home_before_log, postgres, "pages are written home before the log has them")                                   \
  X(cut_before_log, postgres, "a file is cut, and the log does not say so")                                        \
  X(reset_before_flush, postgres, "the log starts over before the homes are flushed")                              \
  X(flushed_before_home, postgres, "the log gives up a batch whose pages go home behind the flush")                \
  X(staged_left_out, postgres, "a change that a dead process has staged is not done again")                        \
  X(durable_before_log, postgres, "a batch counts as durable before the log has it")                               \
  X(wal_failure_forgotten, postgres, "halves of a page of PostgreSQL's log are left out behind a failed flush")    \
  X(wal_of_any_file, postgres, "a page of PostgreSQL's log is taken for that of another file")                     \
  X(wal_known_while_written, postgres, "a page of PostgreSQL's log that a dead process wrote counts as known")
// clang-format on

namespace memlith::core {
enum class Mutant : std::uint16_t {
  none,
#define MEMLITH_MUTANT_NAME(name, floor, what) name,
  MEMLITH_MUTANT_LIST(MEMLITH_MUTANT_NAME) MEMLITH_ISOLATION_MUTANT_LIST(MEMLITH_MUTANT_NAME)
      MEMLITH_READER_MUTANT_LIST(MEMLITH_MUTANT_NAME) MEMLITH_ARCHIVE_MUTANT_LIST(MEMLITH_MUTANT_NAME)
          MEMLITH_SHARED_MUTANT_LIST(MEMLITH_MUTANT_NAME) MEMLITH_SQLITE_MUTANT_LIST(MEMLITH_MUTANT_NAME)
              MEMLITH_POSTGRES_MUTANT_LIST(MEMLITH_MUTANT_NAME)
#undef MEMLITH_MUTANT_NAME
};
inline Mutant active_mutant = Mutant::none;
// If not 0, the result of random_identity(), so that crash states are repeatable.
inline std::uint64_t given_identity = 0;
}  // namespace memlith::core

#define MEMLITH_MUTANT(name) (::memlith::core::active_mutant == ::memlith::core::Mutant::name)
