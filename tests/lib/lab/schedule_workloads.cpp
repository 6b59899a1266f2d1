#include "schedule_workloads.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "explorer.hpp"

namespace memlith::lab {

using namespace core;

namespace {
constexpr std::uint64_t kObjectBytes = 4096;
constexpr std::uint64_t kWideBytes = 24576;
constexpr std::uint64_t kGroup = 1;  // commits side by side: their order is that of the log
}  // namespace

// ---- Session ---------------------------------------------------------------------------------------------------

Session::Session(Scheduler& the_scheduler, StoreOptions options, SimImage start, Content before)
    : volume(std::move(start), true),
      history(std::move(before)),
      scheduler(the_scheduler),
      options_(std::move(options)) {
  make_repeatable(volume);
  volume.before_transfer = [this] {
    if (controller != nullptr) scheduler.here("write or flush");
  };
}

void Session::broken(std::string what) { broken_.push_back(std::move(what)); }

void Session::open() {
  auto opened = Store::open(MutantVolume::over(volume, mutated), options_);
  if (opened.ok()) {
    store = std::move(*opened);
  } else {
    broken(fmt::format("open failed: {}", last_error_text()));
  }
}

void Session::close() {
  const Status status = store->close();
  if (status.ok()) {
    for (const std::size_t commit : captured_) history.acknowledged(commit, now());
    captured_.clear();
    history.closed(now());
  } else if (volume.faults().fired() == 0) {
    broken(fmt::format("close failed although nothing had: {}", last_error_text()));
  }
  store = nullptr;
}

void Session::checkpoint() {
  const Status status = store->checkpoint();
  if (!status.ok() && volume.faults().fired() == 0) {
    broken(fmt::format("a checkpoint failed although nothing had: {}", last_error_text()));
  }
}

void Session::write_home() {
  const Lsn end = store->log().durable_lsn();
  const Status status = store->write_home(end);
  if (!status.ok() && volume.faults().fired() == 0) {
    broken(fmt::format("homes could not be brought up to date although nothing had failed: {}", last_error_text()));
  }
}

Session::Captured Session::append(Store& to, const std::string& object, std::uint64_t offset, std::uint64_t bytes,
                                  bool sync) {
  const Write write{object, offset, bytes};
  const std::uint64_t fill = 1 + 61 * ++fill_;
  const std::size_t commit =
      history.started(text_of_commit({write}, 0), change_of_commit({write}, fill, 0), now(), kGroup);
  return append(to, commit, {to.find(object)->id, offset, bytes}, bytes_of(fill, write), sync);
}

Session::Captured Session::capture(std::string text, Change change, const std::string& object, std::uint64_t offset,
                                   std::span<const std::byte> bytes) {
  const std::size_t commit = history.started(std::move(text), std::move(change), now(), kGroup);
  return append(*store, commit, {store->find(object)->id, offset, bytes.size()}, bytes, true);
}

Session::Captured Session::append(Store& to, std::size_t commit, const Extent& extent,
                                  std::span<const std::byte> content, bool sync) {
  Captured result;
  result.commit = commit;
  auto writer = to.begin_commit({&extent, 1}, {}, sync);
  if (!writer.ok()) {
    if (volume.faults().fired() == 0)
      broken(fmt::format("a commit failed although nothing had: {}", last_error_text()));
    history.cancelled(result.commit);
    return result;
  }
  // Now, because one that fails may be in the log nevertheless.
  history.placed(result.commit, writer->begin());
  writer->put(content.data(), content.size());
  const auto end = writer->finish();
  if (!end.ok()) {
    if (volume.faults().fired() == 0)
      broken(fmt::format("a commit failed although nothing had: {}", last_error_text()));
    return result;
  }
  to.wake_checkpointer(*end);
  result.end = *end;
  result.ok = true;
  return result;
}

void Session::acknowledge(Store& to, const Captured& captured, Status status) {
  if (status.ok()) {
    const Unobserved asking;
    if (captured.end > to.log().durable().lsn) broken("a commit was acknowledged that the log does not call durable");
    history.acknowledged(captured.commit, now());
    std::erase(captured_, captured.commit);
  } else if (volume.faults().fired() == 0) {
    broken(fmt::format("a commit failed although nothing had: {}", last_error_text()));
  }
}

void Session::commit(const std::string& object, std::uint64_t offset, std::uint64_t bytes) {
  const Captured captured = append(*store, object, offset, bytes, true);
  if (captured.ok) acknowledge(*store, captured, store->sync(captured.end));
}

Session::Captured Session::commit_soon(const std::string& object, std::uint64_t offset, std::uint64_t bytes) {
  const Captured captured = append(*store, object, offset, bytes, false);
  if (!captured.ok) return captured;
  captured_.push_back(captured.commit);
  store->flush_soon(captured.end);
  return captured;
}

void Session::await_durable(const Captured& captured) {
  if (!captured.ok) return;
  scheduler.block("wait until it is durable", nullptr, kForEver, [this, &captured] {
    const Unobserved asking;
    return store->log().durable_lsn() >= captured.end || store->log().poisoned();
  });
  const Unobserved asking;
  if (store->log().durable_lsn() >= captured.end) acknowledge(*store, captured, kOk);
}

void Session::use_alone(const std::string& object, Volume& through) {
  auto opened = Store::open(through, options_);
  if (!opened.ok()) {
    if (opened.error().category != Errc::busy) broken(fmt::format("open failed: {}", last_error_text()));
    return;
  }
  if (creation_ != kNever) history.acknowledged(creation_, now());
  creation_ = kNever;
  Store& mine = **opened;
  if (!mine.find(object).has_value()) {
    const std::size_t commit = history.started(
        "create " + object, [object](Content& c) { c.objects[object].resize(kObjectBytes); }, now(), kGroup);
    const auto made = mine.create(object, kObjectBytes, kAddress, kReserve);
    if (!made.ok()) {
      broken(fmt::format("creating an object failed: {}", last_error_text()));
      return;
    }
    history.placed(commit, mine.log().head());
    history.acknowledged(commit, now());
  }
  const Captured captured = append(mine, object, 100, 700, true);
  if (captured.ok) acknowledge(mine, captured, mine.sync(captured.end));
  if (!mine.close().ok()) broken(fmt::format("close failed: {}", last_error_text()));
}

void Session::side_by_side(std::vector<std::function<void()>> acts) {
  scheduler.let_others_run();
  std::vector<Thread> threads;
  for (std::size_t i = 1; i < acts.size(); ++i) threads.emplace_back(acts[i]);
  decided_from = now();
  scheduler.begin_deciding();
  acts.front()();
  for (Thread& thread : threads) thread.join();
  scheduler.end_deciding();
}

// ---- the cases -------------------------------------------------------------------------------------------------

namespace {

StoreOptions with_checkpointer() {
  StoreOptions options = small_store();
  options.manual_checkpoint = false;
  options.log_max_bytes = options.log_bytes;
  return options;
}
StoreOptions with_busy_log() {
  StoreOptions options = small_store();
  options.manual_checkpoint = false;
  options.log_busy_bytes = options.log_max_bytes;
  return options;
}
StoreOptions with_window() {
  StoreOptions options = small_store();
  options.flush_window.interval_ms = 10;
  return options;
}
StoreOptions with_window_of_few_bytes() {
  StoreOptions options = with_window();
  options.flush_window.bytes = 600;
  return options;
}

StoreOptions with_room() {
  StoreOptions options = small_store();
  options.log_bytes = options.log_max_bytes;
  return options;
}

// A kv store takes only transactions whose largest frame is half a log.
StoreOptions with_room_for_pages() {
  StoreOptions options = small_store();
  options.log_bytes = options.log_max_bytes = 64 * options.slot_bytes;
  return options;
}

// The same, but only when the log has grown.
StoreOptions with_room_to_grow() {
  StoreOptions options = small_store();
  options.log_max_bytes = 128 * options.slot_bytes;
  return options;
}

void two_commits(Session& s) {
  s.open();
  s.side_by_side({[&] { s.commit("a", 0, 700); }, [&] { s.commit("b", 0, 700); }});
}

void two_commits_each(Session& s) {
  s.open();
  s.side_by_side({[&] { s.commit("a", 0, 100), s.commit("a", 50, 100); },
                  [&] { s.commit("b", 0, 100), s.commit("b", 50, 100); }});
}

void three_commits(Session& s) {
  s.open();
  s.side_by_side({[&] { s.commit("a", 0, 100); }, [&] { s.commit("b", 0, 100); }, [&] { s.commit("c", 0, 100); }});
}

// One batch in flight at a time: later committers wait for the next batch.
void three_commits_of_full_batches(Session& s) {
  s.open();
  s.side_by_side({[&] { s.commit("a", 0, 2500); }, [&] { s.commit("b", 0, 2500); }, [&] { s.commit("c", 0, 2500); }});
}

void commit_beside_checkpoint(Session& s) {
  s.open();
  s.commit("a", 0, 600);
  s.side_by_side({[&] { s.commit("a", 300, 600), s.commit("b", 0, 600); }, [&] { s.checkpoint(); }});
}

void homes_beside_checkpoint(Session& s) {
  s.open();
  s.commit("a", 0, 600);
  s.write_home();
  s.commit("b", 0, 600);
  s.side_by_side({[&] { s.write_home(), s.commit("a", 300, 600), s.write_home(); }, [&] { s.checkpoint(); }});
}

void two_checkpoints(Session& s) {
  s.open();
  s.commit("a", 0, 600);
  s.side_by_side({[&] { s.checkpoint(); }, [&] { s.commit("b", 0, 600), s.checkpoint(); }});
}

// The store's own thread checkpoints when half of the log is used.
void commits_wake_the_checkpointer(Session& s) {
  s.open();
  s.commit("a", 0, 3000);
  s.side_by_side({[&] { s.commit("a", 100, 3000), s.commit("b", 0, 3000); }});
}

// The log is full except for one slot: the second committer waits for the checkpointer.
void commits_wait_for_space(Session& s) {
  s.open();
  for (int i = 0; i < 3; ++i) s.commit("a", static_cast<std::uint64_t>(i) * 100, 3000);
  s.side_by_side({[&] { s.commit("a", 0, 3000), s.commit("b", 0, 3000); }});
}

// A checkpoint has ended, and a commit has used some of the room that it made; three more use it up.
void open_with_little_room(Session& s) {
  s.open();
  for (int i = 0; i < 3; ++i) s.commit("a", static_cast<std::uint64_t>(i) * 100, 3000);
  s.scheduler.let_others_run();
  s.commit("a", 300, 3000);
}

void two_wait_for_space(Session& s) {
  open_with_little_room(s);
  s.side_by_side({[&] { s.commit("a", 0, 3000), s.commit("a", 100, 3000); }, [&] { s.commit("b", 0, 3000); }});
}

// The checkpoint that half a log asked for may be about to end when commits have filled the log once more.
void late_for_space(Session& s) {
  open_with_little_room(s);
  s.side_by_side({[&] {
    for (int i = 0; i < 6; ++i) s.commit("a", static_cast<std::uint64_t>(i) * 100, 3000);
  }});
}

// Checkpoints have written more than a slot home: when half of the log is used, it grows by one.
void open_about_to_grow(Session& s) {
  s.open();
  for (int i = 0; i < 2; ++i) {
    s.commit("a", 0, 3000);
    s.checkpoint();
  }
  s.commit("a", 100, 3000);
}

void commits_make_the_log_grow(Session& s) {
  open_about_to_grow(s);
  s.side_by_side({[&] { s.commit("a", 200, 3000), s.commit("b", 0, 3000); }});
}

void close_beside_the_growing(Session& s) {
  open_about_to_grow(s);
  s.side_by_side({[&] {
    s.commit("b", 0, 3000);
    s.close();
  }});
}

void commit_beside_growth(Session& s) {
  s.open();
  s.side_by_side({[&] { s.commit("wide", 0, 20000); }, [&] { s.commit("a", 0, 600); }});
}

void two_growths(Session& s) {
  s.open();
  s.side_by_side({[&] { s.commit("wide", 0, 20000); }, [&] { s.commit("wide", 1000, 20000); }});
}

void trim_beside_growth(Session& s) {
  s.open();
  for (int i = 0; i < 3; ++i) s.commit("a", static_cast<std::uint64_t>(i) * 100, 3000);
  s.side_by_side({[&] { s.checkpoint(), s.commit("a", 50, 3000), s.commit("a", 150, 3000); },
                  [&] { s.commit("wide", 0, 20000); }});
}

// Frames larger than a batch are streamed, one at a time.
void two_streams(Session& s) {
  s.open();
  s.side_by_side({[&] { s.commit("wide", 0, 6000); }, [&] { s.commit("wide", 7000, 6000); }});
}

void stream_beside_commits(Session& s) {
  s.open();
  s.side_by_side({[&] { s.commit("a", 0, 600), s.commit("a", 100, 600); }, [&] { s.commit("wide", 0, 6000); }});
}

void stream_beside_checkpoint(Session& s) {
  s.open();
  s.commit("a", 0, 600);
  s.side_by_side({[&] { s.commit("wide", 0, 6000); }, [&] { s.checkpoint(), s.commit("b", 0, 600); }});
}

void two_streams_whose_flush_fails(Session& s) {
  s.open();
  s.volume.faults().plan(SimFaults::Kind::fail_flush, 0);
  s.side_by_side({[&] { s.commit("wide", 0, 6000); }, [&] { s.commit("wide", 7000, 6000); }});
}

// The write that fails may be of the stream or of a batch.
void write_fails_beside_a_stream(Session& s) {
  s.open();
  s.volume.faults().plan(SimFaults::Kind::fail_write, 1);
  s.side_by_side({[&] { s.commit("wide", 0, 6000); }, [&] { s.commit("a", 0, 600); }});
}

void asynchronous(Session& s) {
  s.open();
  s.side_by_side({[&] {
    (void)s.commit_soon("a", 0, 100);
    s.await_durable(s.commit_soon("a", 50, 100));
  }});
}

void asynchronous_beside_a_commit(Session& s) {
  s.open();
  s.side_by_side({[&] { s.await_durable(s.commit_soon("a", 0, 100)); }, [&] { s.commit("b", 0, 100); }});
}

void two_asynchronous(Session& s) {
  s.open();
  s.side_by_side({[&] { s.await_durable(s.commit_soon("a", 0, 700)); },
                  [&] { s.await_durable(s.commit_soon("b", 0, 700)); }});
}

// Payloads of one frame are copied beside each other; the last one is waited for.
void packed(Session& s) {
  s.open();
  s.side_by_side({[&] {
                    (void)s.commit_soon("a", 0, 300);
                    s.await_durable(s.commit_soon("a", 50, 300));
                  },
                  [&] {
                    (void)s.commit_soon("a", 100, 300);
                    s.commit("a", 150, 100);
                  }});
}

void close_beside_the_flusher(Session& s) {
  s.open();
  s.side_by_side({[&] {
    (void)s.commit_soon("a", 0, 100);
    (void)s.commit_soon("b", 0, 100);
    s.close();
  }});
}

void close_beside_the_checkpointer(Session& s) {
  s.open();
  s.commit("a", 0, 3000);
  s.side_by_side({[&] {
    s.commit("a", 100, 3000);
    s.commit("b", 0, 3000);
    s.close();
  }});
}

void two_open(Session& s) {
  SwitchingVolume switching(s.volume, s.scheduler);
  s.expect_creation();
  s.side_by_side({[&] { s.use_alone("a", switching); }, [&] { s.use_alone("b", switching); }});
}

void flush_fails(Session& s) {
  s.open();
  s.volume.faults().plan(SimFaults::Kind::fail_flush, 0);
  s.side_by_side({[&] { s.commit("a", 0, 100); }, [&] { s.commit("b", 0, 100); }, [&] { s.commit("c", 0, 100); }});
}

void write_fails_in_a_checkpoint(Session& s) {
  open_with_little_room(s);
  s.volume.faults().plan(SimFaults::Kind::fail_write, 6);  // behind the commits that fit
  s.side_by_side({[&] { s.commit("a", 0, 3000), s.commit("a", 100, 3000); }, [&] { s.commit("b", 0, 3000); }});
}

// The checkpoint that two commits wait for lacks memory: neither is lost, and there is room for the next.
void memory_lacks_in_a_checkpoint(Session& s) {
  open_with_little_room(s);
  s.volume.faults().plan(SimFaults::Kind::no_memory, 0);
  s.side_by_side({[&] { s.commit("a", 0, 3000), s.commit("a", 100, 3000); }, [&] { s.commit("b", 0, 3000); }});
  s.commit("a", 100, 3000);
  s.expect_unpoisoned();
}

void flusher_fails(Session& s) {
  s.open();
  s.volume.faults().plan(SimFaults::Kind::fail_flush, 0);
  s.side_by_side({[&] { s.await_durable(s.commit_soon("a", 0, 100)); }, [&] { s.commit("b", 0, 100); }});
}

constexpr ScheduleWorkload kCases[] = {
    {"two-commits", "two threads commit", small_store, two_commits},
    {"two-commits-each", "two threads commit twice", small_store, two_commits_each},
    {"three-commits", "three threads commit and share batches", small_store, three_commits},
    {"three-large-commits", "three threads commit, a batch holds one", small_store, three_commits_of_full_batches},
    {"commit-checkpoint", "commits beside a checkpoint", small_store, commit_beside_checkpoint},
    {"homes-checkpoint", "homes are brought up to date beside a checkpoint", small_store, homes_beside_checkpoint},
    {"two-checkpoints", "two threads checkpoint, one of them after a commit", small_store, two_checkpoints},
    {"checkpointer", "commits wake the thread that checkpoints", with_checkpointer, commits_wake_the_checkpointer},
    {"space", "a commit waits until the thread that checkpoints has made room", with_checkpointer,
     commits_wait_for_space},
    {"two-for-space", "two commits wait for room", with_checkpointer, two_wait_for_space},
    {"late-for-space", "commits fill the log again while a checkpoint ends", with_checkpointer, late_for_space},
    {"growth", "a commit makes the log grow beside another", small_store, commit_beside_growth},
    {"two-growths", "two commits make the log grow", small_store, two_growths},
    {"trim-growth", "a commit makes the log grow beside a checkpoint, whose slots are used again", small_store,
     trim_beside_growth},
    {"two-streams", "two threads commit a streamed frame", with_room, two_streams},
    {"stream-commits", "a streamed frame beside commits", with_room, stream_beside_commits},
    {"stream-checkpoint", "a streamed frame beside a checkpoint and a commit", with_room, stream_beside_checkpoint},
    {"streams-flush-fails", "two streamed frames, and the first flush fails", with_room, two_streams_whose_flush_fails},
    {"stream-write-fails", "a streamed frame beside a commit, and the second write fails", with_room,
     write_fails_beside_a_stream},
    {"busy-log", "commits make the checkpointer let the log grow", with_busy_log, commits_make_the_log_grow},
    {"close-busy-log", "a close while the log may be growing", with_busy_log, close_beside_the_growing},
    {"asynchronous", "commits that the flusher makes durable", small_store, asynchronous},
    {"asynchronous-commit", "a commit of the flusher's beside one that is waited for", small_store,
     asynchronous_beside_a_commit},
    {"asynchronous-window", "two commits of the flusher's within its window", with_window, two_asynchronous},
    {"asynchronous-bytes", "two commits of the flusher's that use its window up", with_window_of_few_bytes,
     two_asynchronous},
    {"packed", "commits of two threads that share a frame, of which one is waited for", small_store, packed, 1},
    {"close-flusher", "a close right behind asynchronous commits", with_window, close_beside_the_flusher},
    {"close-checkpointer", "a close while the checkpointer may be at work", with_checkpointer,
     close_beside_the_checkpointer},
    {"two-opens", "two open, create and close the same store", small_store, two_open, 2, true},
    {"flush-fails", "three commits, and the first flush fails", small_store, flush_fails},
    {"checkpoint-fails", "two commits wait for room, and the checkpoint fails", with_checkpointer,
     write_fails_in_a_checkpoint},
    {"checkpoint-lacks", "two commits wait for room, and the checkpoint lacks memory", with_checkpointer,
     memory_lacks_in_a_checkpoint},
    {"flusher-fails", "the first flush fails, be it the flusher's or a committer's", small_store, flusher_fails},
    {"connections", "connections of a database share flushes, and read what is durable", small_store,
     connections_share_flushes},
    {"connections-fail", "the same, and the first flush fails", small_store, connections_flush_fails},
    {"connections-late", "connections commit twice, and the second flush fails", small_store,
     connections_second_flush_fails},
    {"kv-commits", "two threads commit to a kv store", with_room_for_pages, kv_two_commits, 1},
    {"kv-conflicts", "two transactions of a kv store want the same record", with_room_for_pages, kv_conflicts, 1},
    {"kv-weak", "weak commits of a kv store beside two that are waited for", with_room_for_pages, kv_weak_beside_sync,
     1},
    {"kv-window", "weak commits that the store makes durable within their window", with_room_for_pages, kv_window, 1},
    {"kv-checkpoint", "commits of a kv store beside a checkpoint", with_room_for_pages, kv_beside_checkpoint, 1},
    {"kv-views", "commits of a kv store beside two transactions that only read", with_room_for_pages, kv_views, 1},
    {"kv-refused", "a weak commit of a kv store that the log has no room for on a full disk", with_room_to_grow,
     kv_refused, 1},
    {"kv-small-frames", "weak commits of a kv store on a full disk, larger together than the log", with_room_to_grow,
     kv_small_frames, 1},
    {"kv-two-stores", "commits of one thread to two kv stores, beside one that makes the first durable",
     with_room_for_pages, kv_two_stores, 1},
    {"kv-persist", "a weak commit of a kv store and a commit behind it, beside a persist of the store",
     with_room_for_pages, kv_before_persist, 2},
    {"kv-tickets", "a weak commit of a kv store whose ticket is compared with what is durable, beside a commit",
     with_room_for_pages, kv_tickets, 2},
};

// A closed store of objects a, b, c, and wide; the same for all, so made once for each set of options.
struct Prepared {
  SimImage image;
  Content content;
};
const Prepared& prepared(const StoreOptions& options) {
  static std::map<std::pair<std::uint64_t, std::uint64_t>, Prepared> made;
  Prepared& result = made[{options.log_bytes, options.log_max_bytes}];
  if (!result.image.files.empty()) return result;
  StoreOptions plain = options;
  plain.manual_checkpoint = true;
  SimVolume volume;
  make_repeatable(volume);
  auto store = Store::open(volume, plain);
  MEMLITH_ASSERT(store.ok());
  for (const char* const name : {"a", "b", "c", "wide"}) {
    const std::uint64_t bytes = std::string_view(name) == "wide" ? kWideBytes : kObjectBytes;
    MEMLITH_ASSERT((*store)->create(name, bytes, kAddress, kReserve).ok());
    result.content.objects[name].resize(bytes);
  }
  MEMLITH_ASSERT((*store)->close().ok());
  result.content.exists = true;
  result.image = volume.image();
  return result;
}

}  // namespace

void Session::expect_unpoisoned() {
  if (store->log().poisoned()) broken("the store is poisoned although no write or flush had failed");
}

void Session::expect_creation() {
  creation_ = history.started("create the store", [](Content& content) { content.exists = true; }, now(), kGroup);
  history.placed(creation_, Lsn{0});
}

std::span<const ScheduleWorkload> schedule_workloads() { return kCases; }

const ScheduleWorkload* find_schedule_workload(std::string_view name) {
  for (const ScheduleWorkload& workload : kCases) {
    if (workload.name == name) return &workload;
  }
  return nullptr;
}

std::unique_ptr<Session> make_session(const ScheduleWorkload& workload, std::uint32_t in_flight_max,
                                      Scheduler& scheduler) {
  set_identity(kIdentity);
  StoreOptions options = workload.options();
  options.log.in_flight_max = in_flight_max;
  if (workload.fresh) return std::make_unique<Session>(scheduler, std::move(options), SimImage{}, Content{});
  const Prepared& begin = prepared(options);
  return std::make_unique<Session>(scheduler, std::move(options), begin.image, begin.content);
}

}  // namespace memlith::lab
