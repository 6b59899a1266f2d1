// The subcommands. Each returns the process's exit code, after it has printed its own failure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common.hpp"

namespace demo {

struct RunOptions {
  std::string store;   // the demo's own folder
  std::string folder;  // of text; empty: the machine's documentation
  std::uint32_t kills = 25;
  std::uint64_t seed = 0;
  std::uint64_t limit_bytes = 24 * kMiB;  // of text
  std::uint64_t batch_bytes = 64 * kKiB;
  std::string query_hint;  // the command to ask the index with
};

// Builds the index under kills, proves it equal to one built in peace, asks it something, and shows the figures.
int run(const RunOptions& options);

// Compares the index in the store with one built now, in memory.
int check(const std::string& store);

// Prints the documents that hold all the words.
int query(const std::string& store, const std::vector<std::string>& words);

}  // namespace demo
