// memlith kv: the commands, and what they share.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/cli_words.hpp"
#include "cli/store_path.hpp"
#include "memlith/kv.h"

namespace memlith::tool {

struct KvArguments {
  std::string path;
  std::string region = "kv";
  std::string map;
  std::string key;
  std::string value;
  std::string from;
  std::string to;
  std::string prefix;
  std::string file;
  std::string value_file;
  bool raw = false;
  bool has_value = false;
  std::uint64_t limit = 0;  // 0: all
  Format format = Format::text;
};

void add_kv_commands(CLI::App& app, CommandLine& line);

// ---- text ------------------------------------------------------------------------------------------------------

// Bytes as text: printable ASCII as it is, but for the backslash; every other byte as \xNN.
[[nodiscard]] std::string escaped(std::string_view bytes);
// Nothing if a backslash does not begin \xNN.
[[nodiscard]] std::optional<std::string> unescaped(std::string_view text);

// ---- an open kv store ------------------------------------------------------------------------------------------

class OpenKv {
 public:
  enum class For : std::uint8_t { reading, changing, creating };  // creating: also a missing store and kv store
  static Result<OpenKv> open(const KvArguments& arguments, For what);
  [[nodiscard]] memlith_kv* get() const { return kv_.get(); }
  [[nodiscard]] MaybeFailure close();

  Result<memlith_kv_map> map(const std::string& name, bool create) const;
  // The names, in order.
  Result<std::vector<std::string>> maps() const;

 private:
  struct KvCloser {
    void operator()(memlith_kv* kv) const { (void)memlith_kv_close(kv); }
  };
  StoreHandle store_;  // closed after the kv store
  std::unique_ptr<memlith_kv, KvCloser> kv_;
};

// Frees itself.
struct TxnCloser {
  void operator()(memlith_kv_txn* txn) const { memlith_kv_txn_free(txn); }
};
using TxnHandle = std::unique_ptr<memlith_kv_txn, TxnCloser>;
Result<TxnHandle> begin(const OpenKv& kv, bool read_only);

using Visit = std::function<bool(std::string_view key, std::string_view value)>;
// Records of the map from `from` to below `to`, until `visit` says false. Empty bounds: all.
[[nodiscard]] MaybeFailure for_each_record(memlith_kv_txn* txn, memlith_kv_map map, const std::string& from,
                                           const std::string& to, const Visit& visit);

}  // namespace memlith::tool
