// One commit of a kv store: what changes its pages, and how the change becomes the newest state. Floor: kv.
#pragma once

#include "base/no_throw.hpp"
#include "kv/kv.hpp"

namespace memlith::core::kv {

template <class Change>
Result<std::uint64_t> Kv::change_pages(bool sure, Change&& change) {
  const Stamp stamp = pages_.kept.newest() + 1;
  const std::uint64_t number = stamp - kCheckedStamp + base_commit_;
  weak_commits_.begin();
  const Status done = no_throw([&]() MEMLITH_REQUIRES(writing) -> Status {
    pages_.writer.begin(stamp, sure);
    MEMLITH_TRY(call_annotated(change));
    pages_.writer.reserve_batch(0, 0);
    return kOk;
  });
  if (!done.ok()) pages_.writer.undo();
  pages_.writer.end(number);
  if (done.ok()) return number;
  if (done.category != Errc::no_memory) return done;
  return fail(done.category, Detail::kv,
              "region \"{}\": memory ran out in the middle of a commit, which was undone; the kv store goes on",
              region().shown_name());
}

template <class Change>
Result<std::uint64_t> Kv::change_map(Change&& change) {
  auto number = change_pages(false, change);
  weak_commits_.committed(false);  // also if it failed: its number was used up
  return number;
}

}  // namespace memlith::core::kv
