// The names of a store's files in its volume. Floor: store.
#pragma once

#include <string>

#include "base/units.hpp"
#include "store/format.hpp"

namespace memlith::core {

// The name of the log of a one-file store, in the volume of the file.
std::string file_log_name(const std::string& file_name);

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
  [[nodiscard]] std::string sums(ObjectId id) const { return home(id) + ".sums"; }
};

}  // namespace memlith::core
