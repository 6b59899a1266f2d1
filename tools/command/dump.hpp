// memlith dump, memlith load: the commands. docs/dump.md describes what they promise, and the text.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/cli_words.hpp"
#include "memlith/applog.h"
#include "memlith/heap.h"
#include "memlith/kv.h"

namespace memlith::tool {

inline constexpr int kExitLeftOut = 4;  // `dump --skip...` only: the dump is whole, without what was left out

struct DumpArguments {
  std::string path;
  std::vector<std::string> objects;  // none: all
  std::string file;                  // empty: standard output
  bool bytes = false;
  bool skip = false;
  bool skip_damaged = false;
  Format format = Format::text;
};

struct LoadArguments {
  std::string path;
  std::string file;  // empty: standard input
  bool anywhere = false;
  Format format = Format::text;
};

void add_dump_commands(CLI::App& app, CommandLine& line);

[[nodiscard]] MaybeFailure run_dump(const DumpArguments& arguments);
[[nodiscard]] MaybeFailure run_load(const LoadArguments& arguments);

// ---- what lies in a store --------------------------------------------------------------------------------------

template <class Handle, std::int32_t (*kClose)(Handle*)>
struct HandleCloser {
  void operator()(Handle* handle) const { (void)kClose(handle); }
};
using KvHandle = std::unique_ptr<memlith_kv, HandleCloser<memlith_kv, memlith_kv_close>>;
using LogHandle = std::unique_ptr<memlith_applog, HandleCloser<memlith_applog, memlith_applog_close>>;
using HeapHandle = std::unique_ptr<memlith_heap, HandleCloser<memlith_heap, memlith_heap_close>>;
using RegionHandle = std::unique_ptr<memlith_region, HandleCloser<memlith_region, memlith_region_close>>;

// Bytes of one line of a region, and the unit in which zeros are left out.
inline constexpr std::uint64_t kDumpLineBytes = 48;

}  // namespace memlith::tool
