// Mapped regions of a run, beside copies of what each has to hold.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "region/region.hpp"
#include "run.hpp"

namespace memlith::lab {

// The region is made if there is none; of size 0, only one that is there is mapped.
void map_region(Run& run, const std::string& name, std::uint64_t size, core::TrackerKind tracker);
// The same for persists of thread scope, with a tracker that knows threads by page.
void map_for_threads(Run& run, const std::string& name, std::uint64_t size);

class Regions final : public Structure {
 public:
  using Structure::Structure;

  void map(const std::string& name, std::uint64_t size, core::TrackerKind tracker, bool for_threads = false);
  void unmap(const std::string& name) { regions_.erase(name); }
  void store(const std::string& name, std::uint64_t offset, std::uint64_t bytes);
  void announce(const std::string& name, std::uint64_t offset, std::uint64_t bytes);
  void clear(const std::string& name, std::uint64_t offset, std::uint64_t bytes);  // stores zeros
  void grow(const std::string& name, std::uint64_t size);
  void store_by_another(const std::string& name, std::uint64_t offset, std::uint64_t bytes);  // thread, which then ends
  void persist(const std::vector<std::string>& names, core::Scope scope, bool wait);
  // In a region that is tracked by touches, only the stores to these bytes count.
  void persist_range(const Write& range);
  void discard(const Write& pages);
  void store_same(const std::string& name, std::uint64_t offset, std::uint64_t bytes);  // as often as it is called
  void rollback(const std::vector<std::string>& names);
  void release(const std::string& name);  // as a session does for its memory limit
  // A view of the regions: what was persisted last, whatever was stored since.
  void snapshot(const std::vector<std::string>& names);
  // Another thread stores these bytes, and persists its own stores to these regions.
  void persist_by_another(const Write& write, const std::vector<std::string>& names);
  // The same while the I/O of this thread's persist of its own stores is under way.
  void persist_beside_another(const Write& write, const std::vector<std::string>& names);
  // Another thread, with nothing of its own, persists while the I/O of the first one is under way.
  void persist_joined_by_another(const std::string& name);

  // Changes the writes' bytes, a quarter of each twice, in one transaction; persists regions meanwhile; ends it.
  enum class Ending : std::uint8_t { commit, commit_soon, abort };
  void transaction(const std::vector<Write>& writes, Ending ending, const std::vector<std::string>& persisted);

 private:
  using Bytes = std::vector<std::byte>;
  using Contents = std::map<std::string, Bytes>;
  struct Memory {
    std::unique_ptr<core::Region> region;
    Bytes expected;                                            // the content that it must have
    Bytes captured;                                            // what a persist took last
    std::vector<std::pair<std::uint64_t, std::uint64_t>> own;  // stored to by this thread since
    bool for_threads = false;                                  // threads store to pages of their own

    [[nodiscard]] bool is_as_expected() const;
  };

  static void record(const core::Region& region, std::uint64_t offset, std::uint64_t bytes);
  // The region that has these bytes, or null.
  Memory* at(const std::string& name, std::uint64_t offset = 0, std::uint64_t bytes = 0);
  // Those of the names that are mapped.
  std::vector<core::Region*> mapped(const std::vector<std::string>& names);
  void store_bytes(const std::string& name, std::uint64_t offset, const Bytes& content);
  static Bytes capture_of(const Memory& memory, core::Scope scope);
  // A persist of these stores to the region that have just been made, by another thread.
  std::size_t persist_of_another(const Write& write);
  void persisted_by_another(const Write& write);
  // The newest capture, with a change of it.
  static Bytes changed(const Memory& memory, std::uint64_t offset, const std::byte* bytes, std::uint64_t count);
  void captured(const std::string& name, const Bytes& bytes) { run.region_content[name] = at(name)->captured = bytes; }
  [[nodiscard]] bool can_write(const std::vector<Write>& writes);
  void write(const Write& write, const Bytes& bytes, Contents& captured, Contents& expected);
  bool commit_transaction(std::string_view text, const Contents& captured, const Contents& expected, bool wait,
                          const std::function<core::Result<core::Lsn>()>& capture);
  void check_memory(const std::vector<Write>& writes, std::string_view when);

  std::map<std::string, Memory> regions_;
};

}  // namespace memlith::lab
