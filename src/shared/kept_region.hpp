// A shared region in its keeper. Floor: shared.
//
// There are two memories of it. The shared one is what the clients map and store to. The keeper's own is the region as
// it was captured last: it never has a byte that no commit has. A commit copies ranges from the shared memory to the
// log and to the keeper's; an undo copies them back. Threads: the keeper's one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "region/session.hpp"
#include "shared/channel.hpp"
#include "shared/control.hpp"
#include "shm/segment.hpp"

namespace memlith::core::shared {

class KeptRegion {
 public:
  static Result<std::unique_ptr<KeptRegion>> open(Session& session, const Request& request);
  KeptRegion(const KeptRegion&) = delete;
  KeptRegion& operator=(const KeptRegion&) = delete;

  [[nodiscard]] const Region& region() const { return *open_.region; }
  // Descriptors of the region and of its control segment.
  [[nodiscard]] std::array<int, 2> memories() const { return {memory_.get(), control_.descriptor()}; }

  // Captures the ranges of that transaction, all or nothing, and releases them. Returns the ticket. `waits`: the
  // client waits for the ticket at once; else a background thread makes the commit durable. On full, no_space and
  // no_memory nothing has happened.
  Result<Lsn> commit(Owner owner, bool waits);
  // The ranges of a client that has ended are as they were captured last, and are released.
  void undo(std::uint32_t client);
  // Tells the clients that the keeper ends because something could not be made durable.
  void say_failed() { control_.say_failed(); }

 private:
  explicit KeptRegion(OpenRegion& open) : open_(open), bytes_(open.region->size()) {}
  Status share();
  void fill() const;
  Status stage(const std::vector<Range>& ranges);
  [[nodiscard]] bool has(Range range) const { return range.offset <= bytes_ && range.bytes <= bytes_ - range.offset; }

  OpenRegion& open_;
  const std::uint64_t bytes_;
  Descriptor memory_;
  shm::Mapping shared_;
  Control control_;
  std::vector<std::byte> staged_;  // a commit's bytes
  std::vector<Extent> extents_;
  std::vector<const std::byte*> sources_;
};

}  // namespace memlith::core::shared
