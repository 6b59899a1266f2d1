// A transaction that a client asks its keeper to commit: what it read, and what it wrote. Floor: kv.
//
// The keeper commits it if all that was read is as it was in the snapshot of the transaction, value by value: then the
// transaction would read the same at the moment of its commit, and that is its place in the one order of all commits.
#pragma once

#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "kv/locks.hpp"
#include "kv/page_state.hpp"

namespace memlith::core::kv {

struct Proposal {
  explicit Proposal(std::pmr::memory_resource* memory) : locks(memory) {}
  Stamp view = 0;                // of the snapshot, which is active until the proposal was answered
  std::vector<KeyRange> ranges;  // that were read
  LockSet locks;                 // the records that were read, the ranges that were removed, and the writes

  // As bytes of a message, and back. What is made of bytes has keys and values that lie in them. Errors: invalid - the
  // bytes are none of a proposal, or a key or a value is too long.
  static std::string bytes_of(Stamp view, const LockSet& locks);
  Status read(std::string_view bytes);
};

}  // namespace memlith::core::kv
