// The cases of schedule_workloads.cpp in which threads commit and read as the connections of a SQLite database in WAL
// mode do (integrations/sqlite/src/in_doubt.cpp): a writer captures its commit under the write lock, releases the lock,
// and waits for the flush afterwards, so that the next writer builds upon a commit that is not durable; a reader sees
// the newest commit, and waits until it is durable before it returns anything.
//
// Rows that a reader returned count as acknowledged: the oracle finds a crash that takes them back. Each commit adds
// one to a counter, in the order of the log.
#include <fmt/format.h>

#include <cstring>

#include "mutants/mutants.hpp"
#include "schedule_workloads.hpp"

namespace memlith::lab {

using namespace core;

namespace {

class Connections {
 public:
  explicit Connections(Session& session) : s_(session) { s_.open(); }
  Connections(const Connections&) = delete;
  ~Connections() = default;

  void write() {
    Session::Captured mine;
    std::size_t number = 0;
    {
      UniqueLock lock(write_lock_);
      const std::uint64_t value = ++counter_;
      if (MEMLITH_MUTANT(connection_unlocks_early)) lock.unlock();
      mine = s_.capture(fmt::format("count to {}", value), &add_one, "a", 0, std::as_bytes(std::span(&value, 1)));
      if (MEMLITH_MUTANT(connection_unlocks_early)) lock.lock();
      if (!mine.ok) return;
      number = commits_.size();
      commits_.push_back(mine);
      told_.push_back(false);
      visible_.store(commits_.size());
    }
    if (MEMLITH_MUTANT(connection_acknowledges_early)) {
      tell(number, kOk);
    } else {
      tell(number, s_.store->sync(mine.end));
    }
  }

  // Returns the counter. Every commit that it counts must be durable by then, so that a crash takes none of them back.
  void read() {
    const std::size_t seen = visible_.load();
    if (seen == 0) return;
    Session::Captured newest;
    {
      const LockGuard lock(write_lock_);
      newest = commits_[seen - 1];
    }
    if (!MEMLITH_MUTANT(connection_reads_early) && !s_.store->sync(newest.end).ok()) return;
    for (std::size_t i = 0; i < seen; ++i) tell(i, kOk);
  }

 private:
  // Acknowledged by the first that tells it. Only one of the controlled threads runs at a time.
  void tell(std::size_t number, Status status) {
    if (told_[number]) return;
    told_[number] = status.ok();
    s_.acknowledge(commits_[number], status);
  }
  static void add_one(Content& content) {
    std::vector<std::byte>& bytes = content.objects["a"];
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    ++value;
    std::memcpy(bytes.data(), &value, sizeof value);
  }

  Session& s_;
  Mutex write_lock_;
  std::uint64_t counter_ = 0;
  std::vector<Session::Captured> commits_;
  std::vector<bool> told_;
  Atomic<std::size_t> visible_{0};
};

void act(Connections& connections) {
  connections.write();
  connections.read();
}

}  // namespace

void connections_share_flushes(Session& s) {
  Connections connections(s);
  s.side_by_side({[&] { act(connections); }, [&] { act(connections); }, [&] { connections.read(); }});
}

// The flush that fails may be of one commit, or of several that share it; a commit after it may begin on top of them.
void connections_flush_fails(Session& s) {
  Connections connections(s);
  s.volume.faults().plan(SimFaults::Kind::fail_flush, 0);
  s.side_by_side({[&] { act(connections); }, [&] { act(connections); }, [&] { connections.read(); }});
}

// A commit is durable when the second flush fails, and stays.
void connections_second_flush_fails(Session& s) {
  Connections connections(s);
  s.volume.faults().plan(SimFaults::Kind::fail_flush, 1);
  s.side_by_side({[&] { act(connections), act(connections); }, [&] { act(connections); }});
}

}  // namespace memlith::lab
