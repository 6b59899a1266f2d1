// memlith kv get|put|del|scan|count|stats: looks into a kv store, and changes single records of it.
#include "kv.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "cli/interrupt.hpp"
#include "cli/progress.hpp"
#include "commands.hpp"
#include "dump_text.hpp"

namespace memlith::tool {

// ---- text ------------------------------------------------------------------------------------------------------

std::string escaped(std::string_view bytes) {
  std::string text;
  for (const char each : bytes) {
    const auto byte = static_cast<unsigned char>(each);
    if (byte >= 0x20 && byte < 0x7f && each != '\\') {
      text += each;
    } else {
      text += fmt::format("\\x{:02x}", byte);
    }
  }
  return text;
}

std::optional<std::string> unescaped(std::string_view text) {
  std::string bytes;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      bytes += text[i];
      continue;
    }
    if (i + 3 >= text.size() || text[i + 1] != 'x') return std::nullopt;
    const int high = digit(text[i + 2]);
    const int low = digit(text[i + 3]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes += static_cast<char>(high * 16 + low);
    i += 3;
  }
  return bytes;
}

namespace {

constexpr std::string_view kListRecords =
    "`memlith kv scan STORE MAP` lists the records, and how their keys are written.";

// With the advice that suits where something of the kv store, and not the store, was not found.
Failure failure_of(std::int32_t code, std::string_view doing, std::string_view if_not_found) {
  Failure failure = library_failure(code, doing);
  if (memlith_category(code) == MEMLITH_NOT_FOUND) failure.advice = std::string(if_not_found);
  return failure;
}

}  // namespace

// ---- an open kv store ------------------------------------------------------------------------------------------

Result<OpenKv> OpenKv::open(const KvArguments& arguments, For what) {
  OpenKv opened;
  StorePath path{arguments.path, StoreKind::folder, true};
  struct stat ignored{};
  if (what != For::creating || ::stat(path.path.c_str(), &ignored) == 0) {
    Result<StorePath> found = resolve_store_path(arguments.path);
    if (!found.ok()) return std::move(found.failure());
    path = *found;
  }
  if (path.kind != StoreKind::folder) {
    return tool_failure(MEMLITH_INVALID, fmt::format("{} is not a store's folder", path.path),
                        "A kv store lies in a store that is a folder.");
  }
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = what == For::creating ? MEMLITH_OPEN_CREATE : 0;
  Result<StoreHandle> store = what == For::reading ? open_store_to_look(path) : open_store(path, options);
  if (!store.ok()) return std::move(store.failure());
  opened.store_ = std::move(*store);
  memlith_kv_options kv_options{};
  kv_options.struct_size = sizeof kv_options;
  kv_options.flags = what == For::creating ? MEMLITH_CREATE : 0;
  memlith_kv* kv = nullptr;
  const std::int32_t code = memlith_kv_open(opened.store_.get(), arguments.region.c_str(), &kv_options, &kv);
  if (code != MEMLITH_OK) {
    return failure_of(code, "opening the kv store",
                      "`memlith info STORE` lists the regions; --kv names the one with the kv store.");
  }
  opened.kv_.reset(kv);
  return opened;
}

MaybeFailure OpenKv::close() {
  if (const std::int32_t code = memlith_kv_close(kv_.release()); code != MEMLITH_OK) {
    return library_failure(code, "closing the kv store");
  }
  return close_store(std::move(store_));
}

Result<memlith_kv_map> OpenKv::map(const std::string& name, bool create) const {
  memlith_kv_map map = 0;
  const std::int32_t code = memlith_kv_map_open(kv_.get(), name.c_str(), create ? MEMLITH_CREATE : 0, &map);
  if (code != MEMLITH_OK) return failure_of(code, "opening the map", "`memlith kv stats STORE` lists the maps.");
  return map;
}

Result<std::vector<std::string>> OpenKv::maps() const {
  std::vector<std::string> names;
  char name[MEMLITH_KV_NAME_BYTES_MAX + 1];
  for (;;) {
    const std::int32_t code = memlith_kv_map_at(kv_.get(), names.size(), name, sizeof name);
    if (memlith_category(code) == MEMLITH_NOT_FOUND) return names;
    if (code != MEMLITH_OK) return library_failure(code, "listing the maps");
    names.emplace_back(name);
  }
}

Result<TxnHandle> begin(const OpenKv& kv, bool read_only) {
  memlith_kv_txn* txn = nullptr;
  const std::int32_t code = memlith_kv_begin(kv.get(), read_only ? MEMLITH_KV_READ_ONLY : 0, &txn);
  if (code != MEMLITH_OK) return library_failure(code, "beginning a transaction");
  return TxnHandle(txn);
}

MaybeFailure for_each_record(memlith_kv_txn* txn, memlith_kv_map map, const std::string& from, const std::string& to,
                             const Visit& visit) {
  const memlith_bytes first{from.data(), from.size()};
  const memlith_bytes end{to.data(), to.size()};
  const auto call = [](void* context, memlith_bytes key, memlith_bytes value) -> int {
    const auto& each = *static_cast<const Visit*>(context);
    return each({static_cast<const char*>(key.data), key.size}, {static_cast<const char*>(value.data), value.size}) ? 0
                                                                                                                    : 1;
  };
  const std::int32_t code = memlith_kv_get_range(txn, map, from.empty() ? nullptr : &first, to.empty() ? nullptr : &end,
                                                 call, const_cast<Visit*>(&visit));
  if (code != MEMLITH_OK) return library_failure(code, "reading the map");
  return {};
}

namespace {

Result<std::string> bytes_of(const std::string& text, const char* what) {
  if (auto bytes = unescaped(text)) return *bytes;
  return tool_failure(MEMLITH_INVALID, fmt::format("{} \"{}\" has a backslash that does not begin \\xNN", what, text),
                      "Write a byte as \\x and two hexadecimal digits; a backslash is \\x5c.");
}

void print_record(Format format, std::string_view key, std::string_view value) {
  if (format == Format::json) {
    write_json({{"key", escaped(key)}, {"value", escaped(value)}});
  } else {
    write_line(fmt::format("{}\t{}", escaped(key), escaped(value)));
  }
}

// The kv store and the map of the arguments, and a transaction.
struct MapInUse {
  OpenKv kv;  // destroyed after the transaction
  memlith_kv_map map;
  TxnHandle txn;
};

Result<MapInUse> use_map(const KvArguments& arguments, OpenKv::For what) {
  Result<OpenKv> kv = OpenKv::open(arguments, what);
  if (!kv.ok()) return std::move(kv.failure());
  Result<memlith_kv_map> map = kv->map(arguments.map, what == OpenKv::For::creating);
  if (!map.ok()) return std::move(map.failure());
  Result<TxnHandle> txn = begin(*kv, what == OpenKv::For::reading);
  if (!txn.ok()) return std::move(txn.failure());
  return MapInUse{std::move(*kv), *map, std::move(*txn)};
}

MaybeFailure run_get(const KvArguments& arguments) {
  Result<std::string> key = bytes_of(arguments.key, "the key");
  if (!key.ok()) return std::move(key.failure());
  Result<MapInUse> in_use = use_map(arguments, OpenKv::For::reading);
  if (!in_use.ok()) return std::move(in_use.failure());
  memlith_bytes value{};
  const std::int32_t code = memlith_kv_get(in_use->txn.get(), in_use->map, key->data(), key->size(), &value);
  if (code != MEMLITH_OK) return failure_of(code, "", kListRecords);
  const std::string_view text(static_cast<const char*>(value.data), value.size);
  if (arguments.raw) {
    std::fwrite(text.data(), 1, text.size(), stdout);  // output_failed() tells of an error
    std::fflush(stdout);
  } else if (arguments.format == Format::json) {
    print_record(arguments.format, *key, text);
  } else {
    write_line(escaped(text));
  }
  return {};
}

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// A file to be read; "-" is standard input.
Result<File> opened(const std::string& name) {
  if (name == "-") return File(stdin, [](std::FILE*) { return 0; });
  File file(std::fopen(name.c_str(), "re"), std::fclose);
  if (file == nullptr) return errno_failure(errno, "opening " + name);
  return file;
}

// The value of the arguments: that of the command line, or all bytes of a file as they are.
Result<std::string> value_of(const KvArguments& arguments) {
  if (arguments.value_file.empty()) return bytes_of(arguments.value, "the value");
  Result<File> file = opened(arguments.value_file);
  if (!file.ok()) return std::move(file.failure());
  std::string bytes;
  char part[1 << 16];
  for (std::size_t count = 0; (count = std::fread(part, 1, sizeof part, file->get())) > 0;) bytes.append(part, count);
  if (std::ferror(file->get()) != 0) return errno_failure(errno, "reading " + arguments.value_file);
  return bytes;
}

// One record, durably.
MaybeFailure change(const KvArguments& arguments, bool removes) {
  Result<std::string> key = bytes_of(arguments.key, "the key");
  if (!key.ok()) return std::move(key.failure());
  Result<std::string> value = value_of(arguments);
  if (!value.ok()) return std::move(value.failure());
  Result<MapInUse> in_use = use_map(arguments, removes ? OpenKv::For::changing : OpenKv::For::creating);
  if (!in_use.ok()) return std::move(in_use.failure());
  auto& [kv, map, txn] = *in_use;
  std::int32_t code = removes ? memlith_kv_remove(txn.get(), map, key->data(), key->size())
                              : memlith_kv_put(txn.get(), map, key->data(), key->size(), value->data(), value->size());
  if (code == MEMLITH_OK) code = memlith_kv_commit(txn.get(), MEMLITH_COMMIT_SYNC, nullptr);
  if (code != MEMLITH_OK) return failure_of(code, "", kListRecords);
  txn.reset();
  if (MaybeFailure failure = kv.close()) return failure;
  if (arguments.format == Format::json) {
    write_json({{"map", arguments.map}, {"key", escaped(*key)}, {"durable", true}});
  }
  return {};
}

// Commits of so many bytes of records: a commit of all could be larger than the log.
constexpr std::uint64_t kBatchBytes = 1 << 20;

// Records as `scan` prints them.
MaybeFailure put_all(const KvArguments& arguments, std::FILE* file) {
  Result<MapInUse> in_use = use_map(arguments, OpenKv::For::creating);
  if (!in_use.ok()) return std::move(in_use.failure());
  auto& [kv, map, txn] = *in_use;
  LineReader lines(file);
  ProgressBar bar("putting");
  std::uint64_t records = 0;
  std::uint64_t batch_bytes = 0;
  std::int32_t code = MEMLITH_OK;
  for (;; ++records) {
    Result<bool> more = lines.next();
    if (!more.ok()) return std::move(more.failure());
    if (interrupted()) return interrupted_failure();
    if (!*more && lines.was_cut()) {
      return tool_failure(MEMLITH_INVALID, fmt::format("line {} was cut: it has no end", lines.number + 1),
                          "The records of the lines before were put.");
    }
    if (!*more) break;
    const std::size_t tab = lines.text.find('\t');
    const auto key = unescaped(lines.text.substr(0, tab));
    const auto value = tab == std::string_view::npos ? std::nullopt : unescaped(lines.text.substr(tab + 1));
    if (!key || !value) {
      return tool_failure(MEMLITH_INVALID,
                          fmt::format("line {}: a key, a tab and a value were expected, with bytes that are not "
                                      "printable as \\xNN",
                                      lines.number),
                          "The records of the lines before were put.");
    }
    code = memlith_kv_put(txn.get(), map, key->data(), key->size(), value->data(), value->size());
    batch_bytes += lines.text.size();
    if (code == MEMLITH_OK && batch_bytes >= kBatchBytes) {
      batch_bytes = 0;
      code = memlith_kv_commit(txn.get(), MEMLITH_COMMIT_WEAK, nullptr);
      if (code == MEMLITH_OK) code = memlith_kv_renew(txn.get());
      ProgressBar::update(&bar, lines.bytes, lines.total_bytes);
    }
    if (code != MEMLITH_OK) return library_failure(code, fmt::format("putting the record of line {}", lines.number));
  }
  code = memlith_kv_commit(txn.get(), MEMLITH_COMMIT_SYNC, nullptr);
  if (code != MEMLITH_OK) return library_failure(code, "making the records durable");
  txn.reset();
  if (MaybeFailure failure = kv.close()) return failure;
  if (arguments.format == Format::json) {
    write_json({{"map", arguments.map}, {"records", records}, {"durable", true}});
  } else {
    write_line(fmt::format("{}: put {} records", printable(arguments.path), records));
  }
  return {};
}

MaybeFailure run_put(const KvArguments& arguments) {
  const bool has_value = arguments.has_value || !arguments.value_file.empty();
  if (arguments.file.empty() && (arguments.key.empty() || !has_value)) {
    return tool_failure(MEMLITH_INVALID, "a key and its value are missing",
                        "Give both, or a key and --value-from FILE, or records with --in FILE.");
  }
  if (arguments.file.empty()) return change(arguments, false);
  catch_interrupts();
  Result<File> file = opened(arguments.file);
  if (!file.ok()) return std::move(file.failure());
  return put_all(arguments, file->get());
}
MaybeFailure run_del(const KvArguments& arguments) { return change(arguments, true); }

// The keys of the arguments: from <= key < to; empty: all.
struct Bounds {
  std::string from;
  std::string to;
};

Result<Bounds> bounds_of(const KvArguments& arguments) {
  if (!arguments.prefix.empty()) {
    Result<std::string> prefix = bytes_of(arguments.prefix, "--prefix");
    if (!prefix.ok()) return std::move(prefix.failure());
    // Behind all keys that begin so: the last byte that can be larger is, and those behind it are gone.
    std::string end = *prefix;
    while (!end.empty() && end.back() == '\xff') end.pop_back();
    if (!end.empty()) ++end.back();
    return Bounds{*prefix, end};
  }
  Result<std::string> from = bytes_of(arguments.from, "--from");
  if (!from.ok()) return std::move(from.failure());
  Result<std::string> to = bytes_of(arguments.to, "--to");
  if (!to.ok()) return std::move(to.failure());
  return Bounds{*from, *to};
}

MaybeFailure run_scan(const KvArguments& arguments) {
  Result<Bounds> bounds = bounds_of(arguments);
  if (!bounds.ok()) return std::move(bounds.failure());
  Result<MapInUse> in_use = use_map(arguments, OpenKv::For::reading);
  if (!in_use.ok()) return std::move(in_use.failure());
  std::uint64_t left = arguments.limit;
  const Visit visit = [&](std::string_view key, std::string_view value) {
    print_record(arguments.format, key, value);
    return (arguments.limit == 0 || --left > 0) && !output_failed();
  };
  return for_each_record(in_use->txn.get(), in_use->map, bounds->from, bounds->to, visit);
}

MaybeFailure run_count(const KvArguments& arguments) {
  Result<Bounds> bounds = bounds_of(arguments);
  if (!bounds.ok()) return std::move(bounds.failure());
  Result<MapInUse> in_use = use_map(arguments, OpenKv::For::reading);
  if (!in_use.ok()) return std::move(in_use.failure());
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;
  const Visit visit = [&](std::string_view key, std::string_view value) {
    ++records;
    bytes += key.size() + value.size();
    return true;
  };
  if (MaybeFailure failure = for_each_record(in_use->txn.get(), in_use->map, bounds->from, bounds->to, visit)) {
    return failure;
  }
  if (arguments.format == Format::json) {
    write_json({{"map", arguments.map}, {"records", records}, {"bytes", bytes}});
  } else {
    write_line(fmt::format("{}", records));
  }
  return {};
}

MaybeFailure run_stats(const KvArguments& arguments) {
  Result<OpenKv> kv = OpenKv::open(arguments, OpenKv::For::reading);
  if (!kv.ok()) return std::move(kv.failure());
  memlith_kv_report report{};
  report.struct_size = sizeof report;
  if (const std::int32_t code = memlith_kv_verify(kv->get(), &report); code != MEMLITH_OK) {
    Failure failure = library_failure(code, "checking the kv store");
    if (memlith_category(code) == MEMLITH_CORRUPT) failure.exit_code = kExitDamaged;
    return failure;
  }
  memlith_kv_info info{};
  info.struct_size = sizeof info;
  if (const std::int32_t code = memlith_kv_get_info(kv->get(), &info); code != MEMLITH_OK) {
    return library_failure(code, "");
  }
  Result<std::vector<std::string>> maps = kv->maps();
  if (!maps.ok()) return std::move(maps.failure());
  if (arguments.format == Format::json) {
    write_json({{"maps", *maps},
                {"records", report.records},
                {"commits", info.commits},
                {"region_bytes", info.region_bytes},
                {"page_bytes", info.page_bytes},
                {"pages", info.pages},
                {"free_pages", info.free_pages},
                {"leaf_pages", report.leaf_pages},
                {"inner_pages", report.inner_pages},
                {"overflow_pages", report.overflow_pages},
                {"used_bytes", report.used_bytes},
                {"depth_max", report.depth_max}});
    return {};
  }
  write_line(fmt::format("{}: kv store \"{}\", {} records in {} maps, newest commit {}", printable(arguments.path),
                         printable(arguments.region), report.records, maps->size(), info.commits));
  for (const std::string& name : *maps) write_line("  map " + printable(name));
  write_line(fmt::format("  {} pages of {}: {} leaves, {} inner, {} of long values, {} free; depth {}", info.pages,
                         human_bytes(info.page_bytes), report.leaf_pages, report.inner_pages, report.overflow_pages,
                         report.free_pages, report.depth_max));
  return {};
}

}  // namespace

void add_kv_commands(CLI::App& app, CommandLine& line) {
  CLI::App* const kv = app.add_subcommand("kv", "Look into a key-value store and change single records");
  kv->require_subcommand(1);
  const auto arguments = std::make_shared<KvArguments>();
  const auto add = [&](const char* name, const char* what, MaybeFailure (*function)(const KvArguments&),
                       bool needs_map) {
    CLI::App* const command = kv->add_subcommand(name, what);
    command->add_option("STORE", arguments->path, "A store's folder")->required();
    if (name != std::string_view("stats")) {
      CLI::Option* const map = command->add_option("MAP", arguments->map, "The name of a map");
      if (needs_map) map->required();
    }
    command->add_option("--kv", arguments->region, "The region that holds the kv store")->capture_default_str();
    add_command(command, line, arguments, function);
    return command;
  };
  const char* const key_text = "The key; bytes that are not printable as \\xNN";
  CLI::App* const get = add("get", "Print the value of a record", run_get, true);
  get->add_option("KEY", arguments->key, key_text)->required();
  get->add_flag("--raw", arguments->raw, "Write the bytes of the value as they are, without a line's end");
  CLI::App* const put = add("put", "Write a record, or those of a file, durably; makes what is missing", run_put, true);
  CLI::Option* const put_key = put->add_option("KEY", arguments->key, key_text);
  put->add_option("VALUE", arguments->value, "The value, in the same way")->each([arguments](const std::string&) {
    arguments->has_value = true;
  });
  put->add_option("--in", arguments->file,
                  "Write the records of this file, or with - of standard input: one a line, as `scan` prints them. "
                  "Durable at the end, and in order until then")
      ->excludes(put_key);
  put->add_option("--value-from", arguments->value_file,
                  "The value is all bytes of this file, or with - of standard input, as they are");
  add("del", "Remove a record, durably", run_del, true)->add_option("KEY", arguments->key, key_text)->required();
  CLI::App* const scan = add("scan", "Print records in the order of their keys: key, tab, value", run_scan, true);
  CLI::App* const count = add("count", "Print the number of records; reads all of them", run_count, true);
  for (CLI::App* const each : {scan, count}) {
    CLI::Option* const prefix = each->add_option("--prefix", arguments->prefix, "Keys that begin so");
    each->add_option("--from", arguments->from, "The first key")->excludes(prefix);
    each->add_option("--to", arguments->to, "Where to end: the first key that is not taken")->excludes(prefix);
  }
  add_number(scan, "--limit", arguments->limit, 1, ~0ull >> 1, "At most so many records");
  add("stats", "Check every page, and count records and pages", run_stats, false);
}

}  // namespace memlith::tool
