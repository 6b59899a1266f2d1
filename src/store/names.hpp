// The names of a store's files in its volume. Floor: store.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/units.hpp"
#include "store/format.hpp"

namespace memlith::core {

// The name of the log of a one-file store, in the volume of the file.
std::string file_log_name(const std::string& file_name);
// The name of a common log, in the volume of its files.
std::string common_log_name(std::uint64_t log_id);

inline constexpr std::string_view kSumsSuffix = ".sums";

struct StoreNames {
  std::string file;  // the user's; empty in a folder store
  std::string log;
  std::string blocks;
  std::string stats;
  std::string archived;

  StoreNames(StoreKind kind, const std::string& file_name);
  [[nodiscard]] std::string fresh_log() const { return log + ".new"; }        // until it is complete
  [[nodiscard]] std::string fresh_blocks() const { return blocks + ".new"; }  // likewise
  [[nodiscard]] std::string home(ObjectId id) const;
  // The object whose home has this name in the folder "objects". Nothing if no store gives a file such a name: then the
  // file is passed over.
  static std::optional<ObjectId> object_named(std::string_view name);
  [[nodiscard]] std::string sums(ObjectId id) const { return home(id) + std::string(kSumsSuffix); }
};

}  // namespace memlith::core
