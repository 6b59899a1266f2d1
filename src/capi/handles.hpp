// Shared by the entry points: the objects behind the handles, and copying structs that may be of another version.
// Floor: capi.
//
// A memlith_store is a Session, a memlith_region an OpenRegion of it, a memlith_snapshot a Snapshot: the types of
// memlith.h have no definition.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "memlith/memlith.h"
#include "region/session.hpp"
#include "region/snapshot.hpp"

namespace memlith::core {

inline Status check_commit_mode(std::uint32_t mode) {
  if (mode <= MEMLITH_COMMIT_WEAK) return kOk;
  return fail(Errc::invalid, Detail::argument, "mode is {}; see MEMLITH_COMMIT_SYNC", mode);
}

inline Session& session_of(const memlith_store* store) {
  return *reinterpret_cast<Session*>(const_cast<memlith_store*>(store));
}
inline OpenRegion& open_region_of(const memlith_region* region) {
  return *reinterpret_cast<OpenRegion*>(const_cast<memlith_region*>(region));
}
inline Region& region_of(const memlith_region* region) { return *open_region_of(region).region; }
inline Snapshot& snapshot_of(const memlith_snapshot* snapshot) {
  return *reinterpret_cast<Snapshot*>(const_cast<memlith_snapshot*>(snapshot));
}

inline OpenTransaction& transaction_of(const memlith_txn* tx) {
  return *reinterpret_cast<OpenTransaction*>(const_cast<memlith_txn*>(tx));
}

inline memlith_txn* handle_of(OpenTransaction* open) { return reinterpret_cast<memlith_txn*>(open); }
inline memlith_store* handle_of(Session* session) { return reinterpret_cast<memlith_store*>(session); }
inline memlith_region* handle_of(OpenRegion* region) { return reinterpret_cast<memlith_region*>(region); }
inline memlith_snapshot* handle_of(Snapshot* snapshot) { return reinterpret_cast<memlith_snapshot*>(snapshot); }

inline Status need(const void* pointer, const char* what) {
  if (pointer != nullptr) return kOk;
  return fail(Errc::invalid, Detail::argument, "{} is null", what);
}

// A handle that was closed, or moved from, or never opened: C++ passes null for all of these.
inline Status need_handle(const void* handle, const char* what) {
  if (handle != nullptr) return kOk;
  return fail(Errc::invalid, Detail::argument,
              "the {} is not open: it was closed or moved from before this call, or never opened (its handle is null)",
              what);
}

// The same for a handle, which must not be used in a forked child.
inline Status need_ours(const memlith_store* store) {
  MEMLITH_TRY(need_handle(store, "store"));
  return session_of(store).check_process();
}
inline Status need_ours(const memlith_region* region) {
  MEMLITH_TRY(need_handle(region, "region"));
  return open_region_of(region).session.check_process();
}

inline Status need_ours(const memlith_txn* tx) {
  MEMLITH_TRY(need_handle(tx, "transaction"));
  return transaction_of(tx).session.check_process();
}

// INVALID where they name what there is not.
Result<RegionOptions> region_options(const memlith_region_options& given);

// The regions of one call, which must not come from a forked child. Valid until the thread's next selection.
struct Selection {
  Session* session = nullptr;  // null: no regions
  std::span<Region* const> regions;
};

inline Result<Selection> selection_of(memlith_region* const* regions, std::uint64_t count) {
  if (count == 0) return Selection{};
  MEMLITH_TRY(need(regions, "regions"));
  std::vector<Region*>& all = empty_region_list();
  for (std::uint64_t i = 0; i < count; ++i) {
    MEMLITH_TRY(need_ours(regions[i]));
    all.push_back(&region_of(regions[i]));
  }
  return Selection{&open_region_of(regions[0]).session, all};
}

// Copies the part of an options struct that the caller knows; a later version may be longer, an earlier one shorter.
template <class Options>
Status read_options(const Options* given, Options& options) {
  options = Options{};
  if (given == nullptr) return kOk;
  if (given->struct_size < sizeof(std::uint64_t) || given->struct_size > 4096) {
    return fail(Errc::invalid, Detail::argument, "struct_size is {}; set it to sizeof the struct", given->struct_size);
  }
  const std::size_t known = std::min<std::size_t>(sizeof(Options), given->struct_size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = known; i < given->struct_size; ++i) {
    if (bytes[i] != 0) {
      return fail(Errc::unsupported, Detail::argument,
                  "the option at byte {} of the struct is unknown to this version of memlith", i);
    }
  }
  std::memcpy(&options, given, known);
  return kOk;
}

// Fills the part of the struct that the caller knows, and leaves struct_size unchanged.
template <class Info>
Status write_info(Info* target, Info& info) {
  MEMLITH_TRY(need(target, "info"));
  if (target->struct_size < sizeof(std::uint64_t)) {
    return fail(Errc::invalid, Detail::argument, "struct_size is {}; set it to sizeof the struct", target->struct_size);
  }
  info.struct_size = target->struct_size;
  std::memcpy(target, &info, std::min<std::size_t>(sizeof(Info), info.struct_size));
  return kOk;
}

// Copies as much of the text as fits, and a terminating zero.
inline void copy_text(std::span<char> target, std::string_view text) {
  const std::size_t count = std::min(text.size(), target.size() - 1);
  std::memcpy(target.data(), text.data(), count);
  target[count] = 0;
}

}  // namespace memlith::core
