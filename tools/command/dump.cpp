// memlith dump: what a store holds, as text, from one durable commit.
#include "dump.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "cli/interrupt.hpp"
#include "cli/progress.hpp"
#include "cli/store_path.hpp"
#include "commands.hpp"
#include "dump_heap.hpp"
#include "dump_text.hpp"
#include "kv.hpp"

namespace memlith::tool {

namespace {

// An object of the store, opened as what it is. One of the handles is not null, or the object is damaged.
struct OpenObject {
  memlith_region_info info{};
  std::string damage;
  KvHandle kv;
  LogHandle log;
  HeapHandle heap;
  RegionHandle region;
  [[nodiscard]] std::string name() const { return {info.name, ::strnlen(info.name, sizeof info.name)}; }
};

Result<std::vector<memlith_region_info>> listed(memlith_store* store, const std::vector<std::string>& wanted) {
  std::vector<memlith_region_info> all;
  for (;;) {
    memlith_region_info info{};
    info.struct_size = sizeof info;
    const std::int32_t code = memlith_store_region_at(store, all.size(), &info);
    if (memlith_category(code) == MEMLITH_NOT_FOUND) break;
    if (code != MEMLITH_OK) return library_failure(code, "listing what the store holds");
    all.push_back(info);
  }
  const auto has = [](const std::vector<std::string>& names, const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const std::string& name : wanted) {
    if (std::any_of(all.begin(), all.end(), [&name](const auto& each) { return name == each.name; })) continue;
    return tool_failure(MEMLITH_NOT_FOUND, fmt::format("the store has no object \"{}\"", name),
                        "`memlith info STORE` lists the regions; each holds one object.");
  }
  if (!wanted.empty()) std::erase_if(all, [&](const auto& each) { return !has(wanted, each.name); });
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return std::string_view(a.name) < std::string_view(b.name); });
  return all;
}

// True if the region holds something else than what it was opened as, or nothing yet.
bool is_something_else(std::int32_t code) {
  const std::int32_t category = memlith_category(code);
  return category == MEMLITH_NOT_FOUND || (category == MEMLITH_INCOMPATIBLE && !is_other_version(code));
}

Result<OpenObject> open_object(memlith_store* store, const memlith_region_info& info, const DumpArguments& arguments) {
  OpenObject object;
  object.info = info;
  memlith_kv_options kv_options{};
  kv_options.struct_size = sizeof kv_options;
  kv_options.flags = arguments.skip_damaged ? MEMLITH_KV_CHECK_PAGES : 0;
  memlith_kv* kv = nullptr;
  std::int32_t code = memlith_kv_open(store, info.name, &kv_options, &kv);
  if (kv_options.flags != 0 && memlith_category(code) == MEMLITH_UNSUPPORTED) {  // no checksums can be used
    kv_options.flags = 0;
    code = memlith_kv_open(store, info.name, &kv_options, &kv);
  }
  object.kv.reset(kv);
  if (code == MEMLITH_OK) return object;
  if (!is_something_else(code)) return library_failure(code, "opening a kv store");
  memlith_applog* log = nullptr;
  code = memlith_applog_open(store, info.name, nullptr, &log);
  object.log.reset(log);
  if (code == MEMLITH_OK) return object;
  if (!is_something_else(code)) return library_failure(code, "opening an application log");
  memlith_region_options options{};
  options.struct_size = sizeof options;
  memlith_heap* heap = nullptr;
  if (!arguments.bytes) code = memlith_heap_open(store, info.name, &options, &heap);
  object.heap.reset(heap);
  if (code == MEMLITH_OK) return object;
  if (!is_something_else(code)) return library_failure(code, "opening a heap");
  options.flags = MEMLITH_REGION_ANYWHERE;
  memlith_region* region = nullptr;
  code = memlith_region_open(store, info.name, &options, &region);
  object.region.reset(region);
  if (code == MEMLITH_OK) return object;
  return library_failure(code, "opening a region");
}

std::string_view text_of(const memlith_bytes& bytes) { return {static_cast<const char*>(bytes.data), bytes.size}; }

// True if the file's bytes are not what they should be, or the disk does not give them back.
bool is_damage(const Failure& failure) {
  const std::int32_t category = memlith_category(failure.code);
  return category == MEMLITH_CORRUPT || category == MEMLITH_IO;
}

// In a store that is followed, each opening moves the view on, so all is open before anything is read. Objects that
// were made or removed meanwhile show in a list that is made behind that.
Result<std::vector<OpenObject>> open_all(memlith_store* store, const DumpArguments& arguments) {
  const auto name_of_each = [](const std::vector<memlith_region_info>& all) {
    std::vector<std::string> names;
    for (const auto& each : all) names.emplace_back(each.name);
    return names;
  };
  for (;;) {
    Result<std::vector<memlith_region_info>> before = listed(store, arguments.objects);
    if (!before.ok()) return std::move(before.failure());
    std::vector<OpenObject> objects;
    for (const memlith_region_info& info : *before) {
      if (interrupted()) return interrupted_failure();
      Result<OpenObject> object = open_object(store, info, arguments);
      if (!object.ok() && memlith_category(object.failure().code) == MEMLITH_NOT_FOUND) break;  // it was removed
      if (object.ok()) {
        objects.push_back(std::move(*object));
      } else if (arguments.skip_damaged && is_damage(object.failure())) {
        objects.emplace_back();
        objects.back().info = info;
        objects.back().damage = object.failure().message;
      } else {
        return std::move(object.failure());
      }
    }
    Result<std::vector<memlith_region_info>> after = listed(store, arguments.objects);
    if (!after.ok()) return std::move(after.failure());
    if (objects.size() == before->size() && name_of_each(*before) == name_of_each(*after)) {
      for (std::size_t i = 0; i < objects.size(); ++i) {  // an open one has the address that it has here
        objects[i].info.size = (*after)[i].size;
        objects[i].info.max_size = (*after)[i].max_size;
      }
      return objects;
    }
  }
}

class Dumper {
 public:
  Dumper(StoreKind kind, std::vector<OpenObject> objects, const DumpArguments& arguments, NewFile* file)
      : kind_(kind), objects_(std::move(objects)), arguments_(arguments), writer_(file) {
    for (const OpenObject& each : objects_) total_bytes_ += each.info.size;
  }

  [[nodiscard]] MaybeFailure run() {
    writer_.line(std::string(kDumpFirstWords) + std::string(name_of(kind_)));
    for (const OpenObject& object : objects_) {
      if (!object.damage.empty()) {
        left_out_.push_back(fmt::format("all of \"{}\": {}", object.name(), object.damage));
        continue;
      }
      ++objects_written_;
      MaybeFailure failure = object.kv != nullptr     ? dump_kv(object)
                             : object.log != nullptr  ? dump_log(object)
                             : object.heap != nullptr ? dump_heap(object)
                                                      : dump_region(object);
      if (failure) return failure;
      if (interrupted()) return interrupted_failure();
      if (!writer_.ok()) break;
      done_bytes_ += object.info.size;
    }
    return writer_.finish(objects_written_);
  }
  [[nodiscard]] std::uint64_t objects() const { return objects_written_; }
  [[nodiscard]] std::uint64_t lines() const { return writer_.lines() + 1; }
  [[nodiscard]] const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  // The sizes and places of regions mean something in a folder only.
  DumpHead head_of(const OpenObject& object, const char* kind) const {
    DumpHead head{kind, {}, object.name()};
    if (kind_ == StoreKind::folder) head.numbers["max_size"] = object.info.max_size;
    return head;
  }
  // False to stop.
  bool go_on(std::uint64_t bytes_of_object) {
    ProgressBar::update(&bar_, done_bytes_ + bytes_of_object, total_bytes_);
    return writer_.ok() && !interrupted();
  }

  [[nodiscard]] MaybeFailure dump_kv(const OpenObject& object) {
    writer_.line(head_of(object, "kv").text());
    memlith_kv_txn* begun = nullptr;
    std::int32_t code = memlith_kv_begin(object.kv.get(), MEMLITH_KV_READ_ONLY, &begun);
    if (code != MEMLITH_OK) return library_failure(code, "beginning a transaction");
    const TxnHandle txn(begun);
    char name[MEMLITH_KV_NAME_BYTES_MAX + 1];
    std::uint64_t done = 0;
    for (std::uint64_t number = 0;; ++number) {
      code = memlith_kv_map_at(object.kv.get(), number, name, sizeof name);
      if (memlith_category(code) == MEMLITH_NOT_FOUND) break;
      if (code != MEMLITH_OK) return library_failure(code, fmt::format("listing the maps of \"{}\"", object.name()));
      const std::string place = fmt::format("map \"{}\" of \"{}\"", escaped(name), object.name());
      memlith_kv_map map = 0;
      code = memlith_kv_map_open(object.kv.get(), name, 0, &map);
      MaybeFailure failure;
      if (code != MEMLITH_OK) failure = library_failure(code, place);
      if (failure && arguments_.skip_damaged && is_damage(*failure)) {
        left_out_.push_back("all of " + failure->message);
        continue;
      }
      if (failure) return failure;
      writer_.line("map " + escaped(name));
      const Visit visit = [&](std::string_view key, std::string_view value) {
        writer_.line(" " + escaped(key));
        writer_.line(" " + escaped(value));
        done += key.size() + value.size();
        return go_on(std::min(done, object.info.size));
      };
      failure = arguments_.skip_damaged ? salvage(txn.get(), map, place, visit)
                                        : for_each_record(txn.get(), map, {}, {}, visit);
      if (failure) return failure;
    }
    writer_.line("end");
    return {};
  }

  // The rest of a map of which pages are damaged.
  [[nodiscard]] MaybeFailure salvage(memlith_kv_txn* txn, memlith_kv_map map, const std::string& place,
                                     const Visit& visit) {
    struct Salvage {
      const std::string& place;
      const Visit& visit;
      std::vector<std::string>& left_out;
    } context{place, visit, left_out_};
    const auto record = [](void* all, memlith_bytes key, memlith_bytes value) -> int {
      return static_cast<Salvage*>(all)->visit(text_of(key), text_of(value)) ? 0 : 1;
    };
    const auto lost = [](void* all, const memlith_bytes* from, const memlith_bytes* to, const char* sentence) {
      const auto& [in, ignored, left_out] = *static_cast<Salvage*>(all);
      const auto end = [](const memlith_bytes* key, const char* none) {
        return key == nullptr ? std::string(none) : '"' + escaped(text_of(*key)) + '"';
      };
      left_out.push_back(fmt::format("{}, keys from {} to below {}: {}", in, end(from, "the first"), end(to, "the end"),
                                     sentence));
    };
    const std::int32_t code = memlith_kv_salvage(txn, map, record, lost, &context);
    if (code != MEMLITH_OK) return library_failure(code, place);
    return {};
  }

  [[nodiscard]] MaybeFailure dump_log(const OpenObject& object) {
    memlith_applog_info info{};
    info.struct_size = sizeof info;
    std::int32_t code = memlith_applog_get_info(object.log.get(), &info);
    if (code != MEMLITH_OK) return library_failure(code, "examining an application log");
    DumpHead head = head_of(object, "log");
    head.numbers["size"] = info.size;
    head.numbers["first"] = info.consumed + 1;
    // The log's own first page is no part of its size.
    if (kind_ == StoreKind::folder) head.numbers["max_size"] -= object.info.size - info.size;
    writer_.line(head.text());
    std::string content;
    for (std::uint64_t number = info.consumed + 1; number <= info.durable; ++number) {
      std::uint64_t size = 0;
      code = memlith_applog_get(object.log.get(), number, content.data(), content.size(), &size);
      if (code == MEMLITH_OK && size > content.size()) {
        content.resize(size);
        code = memlith_applog_get(object.log.get(), number, content.data(), content.size(), &size);
      }
      if (code != MEMLITH_OK) return library_failure(code, fmt::format("reading entry {}", number));
      writer_.line(fmt::format(" {} {}", number, escaped(std::string_view(content).substr(0, size))));
      if (!go_on(object.info.size * (number - info.consumed) / (info.durable - info.consumed))) return {};
    }
    writer_.line("end");
    return {};
  }

  [[nodiscard]] MaybeFailure dump_region(const OpenObject& object) {
    const std::uint64_t size = memlith_region_size(object.region.get());
    DumpHead head = head_of(object, "region");
    head.numbers["size"] = size;
    if (kind_ == StoreKind::folder) head.numbers["address"] = object.info.address;
    writer_.line(head.text());
    const std::string_view bytes(static_cast<const char*>(memlith_region_address(object.region.get())), size);
    std::uint64_t expected = ~std::uint64_t{0};  // where the next line is without its place
    for (std::uint64_t at = 0; at < size; at += kDumpLineBytes) {
      const std::string_view line = bytes.substr(at, kDumpLineBytes);
      if (at % (1 << 20) < kDumpLineBytes && !go_on(at)) return {};
      if (std::all_of(line.begin(), line.end(), [](char each) { return each == 0; })) continue;
      if (at != expected) writer_.line(fmt::format("at {}", at));
      writer_.line(" " + base64_of(line));
      expected = at + kDumpLineBytes;
    }
    writer_.line("end");
    return {};
  }

  [[nodiscard]] MaybeFailure dump_heap(const OpenObject& object) {
    writer_.line(head_of(object, "heap").text());
    Result<std::vector<NamedType>> names = objects_of(object.heap.get());
    if (!names.ok()) return std::move(names.failure());
    for (const NamedType& each : *names) {
      Result<std::string> text = object_as_text(object.heap.get(), each);
      if (text.ok()) {
        writer_.line(" " + *text);
      } else if (arguments_.skip && memlith_category(text.failure().code) == MEMLITH_UNSUPPORTED) {
        left_out_.push_back(text.failure().message);
      } else {
        return std::move(text.failure());
      }
      if (!go_on(0)) return {};
    }
    writer_.line("end");
    return {};
  }

  StoreKind kind_;
  std::vector<OpenObject> objects_;
  const DumpArguments& arguments_;
  DumpWriter writer_;
  ProgressBar bar_{"dumping"};
  std::uint64_t done_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
  std::uint64_t objects_written_ = 0;
  std::vector<std::string> left_out_;
};

Failure no_database(const std::string& path) {
  return tool_failure(MEMLITH_UNSUPPORTED, fmt::format("{} is a SQLite database", path),
                      "Use SQLite's own dump, or `memlith sqlite export`, which writes it as an ordinary file.");
}

}  // namespace

MaybeFailure run_dump(const DumpArguments& arguments) {
  catch_interrupts();
  if (arguments.format == Format::json && arguments.file.empty()) {
    return tool_failure(MEMLITH_INVALID, "the dump and what --json prints cannot both go to standard output",
                        "Name a file for the dump with --out.");
  }
  Result<StorePath> path = resolve_store_path(arguments.path);
  if (!path.ok()) return std::move(path.failure());
  Result<bool> database = is_sqlite(*path);
  if (!database.ok()) return std::move(database.failure());
  if (*database) return no_database(path->path);
  Result<StoreHandle> store = open_store_to_look(*path);
  if (!store.ok()) return std::move(store.failure());
  Result<std::vector<OpenObject>> objects = open_all(store->get(), arguments);
  if (!objects.ok()) return std::move(objects.failure());

  std::optional<NewFile> file;
  if (!arguments.file.empty()) {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    Result<NewFile> made = NewFile::create(arguments.file, 0, 0666 & ~mask);
    if (!made.ok()) return std::move(made.failure());
    file.emplace(std::move(*made));
  }
  Dumper dumper(path->kind, std::move(*objects), arguments, file.has_value() ? &*file : nullptr);
  if (MaybeFailure failure = dumper.run()) return failure;
  if (file.has_value()) {
    if (MaybeFailure failure = file->publish(Replace::yes)) return failure;
  }
  if (arguments.format == Format::json) {
    write_json({{"objects", dumper.objects()}, {"lines", dumper.lines()}, {"left_out", dumper.left_out()}});
  }
  if (dumper.left_out().empty()) return {};
  Failure failure = tool_failure(arguments.skip_damaged ? MEMLITH_CORRUPT : MEMLITH_UNSUPPORTED,
                                 fmt::format("the dump is complete but for what was left out: {}",
                                             fmt::join(dumper.left_out(), "; ")));
  failure.exit_code = kExitLeftOut;
  return failure;
}

void add_dump_commands(CLI::App& app, CommandLine& line) {
  const auto of_dump = std::make_shared<DumpArguments>();
  CLI::App* const dump =
      app.add_subcommand("dump",
                         "Write what a store holds as text, as one durable commit left it, for `memlith load`. Exit "
                         "codes: 0, all of it; 1, failed; 4, without what --skip or --skip-damaged left out");
  dump->add_option("STORE", of_dump->path,
                   "A store's folder or block device, or a file with its log FILE.memlith beside it")
      ->required();
  dump->add_option("OBJECT", of_dump->objects, "Regions, kv stores, logs or heaps, by name; without any: all");
  dump->add_option("--out", of_dump->file, "A file instead of standard output; it appears when it is complete");
  dump->add_flag("--bytes", of_dump->bytes,
                 "Of heaps the bytes, whatever types they hold; these load at the same addresses, and into this format "
                 "of heaps, only");
  dump->add_flag("--skip", of_dump->skip, "Leave out objects of heaps whose types are not described, and say which");
  dump->add_flag("--skip-damaged", of_dump->skip_damaged,
                 "Leave out records of kv stores whose pages are damaged or cannot be read, and objects that cannot be "
                 "opened for that, and say which");
  add_command(dump, line, of_dump, run_dump);
  const auto of_load = std::make_shared<LoadArguments>();
  CLI::App* const load =
      app.add_subcommand("load", "Make a store of such a text; the store appears when it is complete, or not at all");
  load->add_option("STORE", of_load->path, "The new store, which must not exist")->required();
  load->add_option("--in", of_load->file, "A file instead of standard input");
  load->add_flag("--anywhere", of_load->anywhere,
                 "Give regions new addresses: for data without pointers, where the old addresses are taken");
  add_command(load, line, of_load, run_load);
}

}  // namespace memlith::tool
