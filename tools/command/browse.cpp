// memlith browse: looks around in a store, on a terminal. Views lie on each other: the store's regions, the maps of a
// kv store, the records of a map, the entries of an application log, the named objects of a heap and what is in them,
// bytes. Nothing is changed.
#ifdef MEMLITH_BROWSE
#include <fmt/format.h>
#include <ncurses.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/store_path.hpp"
#include "commands.hpp"
#include "dump_heap.hpp"
#include "kv.hpp"
#include "memlith/applog.h"
#include "memlith/region.hpp"
#include "steps.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kBytesInLine = 16;
constexpr std::uint64_t kShownBytes = 64 << 10;   // of a value or an entry
constexpr std::uint64_t kShownElements = 10'000;  // of a container in a heap

enum class Motion : std::uint8_t { up, down, page_up, page_down, home, end };

// ---- views -----------------------------------------------------------------------------------------------------

class View;
using ViewPointer = std::unique_ptr<View>;

// The content of a screen. A failure is told, and leaves the view as it is.
class View {
 public:
  explicit View(std::string title) : title_(std::move(title)) {}
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  virtual ~View() = default;

  [[nodiscard]] const std::string& title() const { return title_; }
  // The lines of a screen of so many, and which of them is selected.
  struct Lines {
    std::vector<std::string> all;
    std::size_t selected = 0;
  };
  virtual Result<Lines> lines(std::size_t height) = 0;
  virtual MaybeFailure move(Motion motion, std::size_t height) = 0;
  // The view behind the selected line; null: none.
  virtual Result<ViewPointer> enter() { return ViewPointer(); }
  // Says which text is searched here; empty: no search.
  [[nodiscard]] virtual std::string_view searched() const { return {}; }
  virtual MaybeFailure search(const std::string& /*text*/) { return {}; }

 private:
  const std::string title_;
};

// Lines that have numbers.
class NumberedView : public View {
 public:
  using View::View;
  Result<Lines> lines(std::size_t height) override {
    const std::uint64_t all = count();
    selected_ = std::min(selected_, all == 0 ? 0 : all - 1);
    top_ = std::clamp(top_, selected_ + 1 - std::min<std::uint64_t>(height, selected_ + 1), selected_);
    Lines found;
    for (std::uint64_t i = top_; i < all && found.all.size() < height; ++i) found.all.push_back(line(i));
    found.selected = selected_ - top_;
    return found;
  }
  MaybeFailure move(Motion motion, std::size_t height) override {
    const std::uint64_t last = count() == 0 ? 0 : count() - 1;
    switch (motion) {
      case Motion::up: selected_ -= selected_ > 0 ? 1 : 0; break;
      case Motion::down: selected_ = std::min(selected_ + 1, last); break;
      case Motion::page_up: selected_ -= std::min<std::uint64_t>(selected_, height); break;
      case Motion::page_down: selected_ = std::min(selected_ + height, last); break;
      case Motion::home: selected_ = 0; break;
      case Motion::end: selected_ = last; break;
    }
    return {};
  }

 protected:
  [[nodiscard]] virtual std::uint64_t count() = 0;
  [[nodiscard]] virtual std::string line(std::uint64_t number) = 0;
  [[nodiscard]] std::uint64_t selected() const { return selected_; }
  void select(std::uint64_t number) { selected_ = number; }

 private:
  std::uint64_t top_ = 0;
  std::uint64_t selected_ = 0;
};

// Decimal, or hexadecimal behind 0x.
Result<std::uint64_t> number_of(std::string_view text, const char* what) {
  const bool hexadecimal = text.starts_with("0x");
  if (hexadecimal) text.remove_prefix(2);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, hexadecimal ? 16 : 10);
  if (error == std::errc() && end == text.data() + text.size() && !text.empty()) return number;
  return tool_failure(MEMLITH_INVALID, fmt::format("\"{}\" is no {}", text, what));
}

// Bytes as in a hex dump.
class BytesView : public NumberedView {
 public:
  // `owner` keeps the bytes in memory.
  BytesView(std::string title, const void* bytes, std::uint64_t size, std::shared_ptr<void> owner)
      : NumberedView(std::move(title)),
        bytes_(static_cast<const char*>(bytes)),
        size_(size),
        owner_(std::move(owner)) {}
  [[nodiscard]] std::string_view searched() const override { return "offset"; }
  MaybeFailure search(const std::string& text) override {
    Result<std::uint64_t> offset = number_of(text, "offset");
    if (!offset.ok()) return std::move(offset.failure());
    if (*offset >= size_) return tool_failure(MEMLITH_INVALID, fmt::format("there are only {} bytes", size_));
    select(*offset / kBytesInLine);
    return {};
  }

 protected:
  [[nodiscard]] std::uint64_t count() override { return (size_ + kBytesInLine - 1) / kBytesInLine; }
  [[nodiscard]] std::string line(std::uint64_t number) override {
    const std::uint64_t begin = number * kBytesInLine;
    std::string hex;
    std::string text;
    for (std::uint64_t i = begin; i < begin + kBytesInLine; ++i) {
      if (i % 8 == 0) hex += ' ';
      const auto byte = static_cast<unsigned char>(i < size_ ? bytes_[i] : 0);
      hex += i < size_ ? fmt::format("{:02x} ", byte) : "   ";
      if (i < size_) text += byte >= 0x20 && byte < 0x7f ? static_cast<char>(byte) : '.';
    }
    return fmt::format("{:08x} {} {}", begin, hex, text);
  }

 private:
  const char* bytes_;
  std::uint64_t size_;
  std::shared_ptr<void> owner_;
};

ViewPointer view_of_bytes(std::string title, std::vector<char> bytes, std::uint64_t whole) {
  if (whole > bytes.size()) title += fmt::format(", the first {} of {} bytes", bytes.size(), whole);
  auto owner = std::make_shared<std::vector<char>>(std::move(bytes));
  const void* const at = owner->data();
  const std::uint64_t size = owner->size();
  return std::make_unique<BytesView>(std::move(title), at, size, std::move(owner));
}

// ---- kv stores -------------------------------------------------------------------------------------------------

struct KvCloser {
  void operator()(memlith_kv* kv) const { (void)memlith_kv_close(kv); }
};
using SharedKv = std::shared_ptr<memlith_kv>;

Result<TxnHandle> begin_reading(const SharedKv& kv) {
  memlith_kv_txn* txn = nullptr;
  if (const std::int32_t code = memlith_kv_begin(kv.get(), MEMLITH_KV_READ_ONLY, &txn); code != MEMLITH_OK) {
    return library_failure(code, "beginning a transaction");
  }
  return TxnHandle(txn);
}

// The records of a map. There may be millions, and they have no numbers: what is shown is looked for by its keys.
class MapView : public View {
 public:
  MapView(std::string title, SharedKv kv, memlith_kv_map map) : View(std::move(title)), kv_(std::move(kv)), map_(map) {}

  Result<Lines> lines(std::size_t height) override {
    if (window_.empty() || window_.size() > height) {
      const std::string from = window_.empty() ? "" : window_.front().key;
      if (auto failure = load(from, true, height)) return std::move(*failure);
    } else if (window_.size() < height) {
      if (auto failure = load(window_.front().key, true, height)) return std::move(*failure);
    }
    Lines found;
    for (const Record& each : window_) {
      found.all.push_back(fmt::format("{:<32} {:>10}  {}", escaped(each.key), each.bytes, escaped(each.begin)));
    }
    selected_ = std::min(selected_, found.all.empty() ? 0 : found.all.size() - 1);
    found.selected = selected_;
    return found;
  }
  MaybeFailure move(Motion motion, std::size_t height) override {
    if (window_.empty()) return {};
    const std::size_t last = window_.size() - 1;
    switch (motion) {
      case Motion::up:
        if (selected_ > 0) return --selected_, MaybeFailure();
        return step_back(1, height);
      case Motion::down:
        if (selected_ < last) return ++selected_, MaybeFailure();
        return step_on(height);
      case Motion::page_up: return step_back(height, height);
      case Motion::page_down: {
        if (auto failure = load(window_.back().key, true, height)) return failure;
        selected_ = 0;
        return {};
      }
      case Motion::home: selected_ = 0; return load("", true, height);
      case Motion::end: {
        if (auto failure = load("", false, height)) return failure;
        selected_ = window_.empty() ? 0 : window_.size() - 1;
        return {};
      }
    }
    return {};
  }
  Result<ViewPointer> enter() override {
    if (window_.empty()) return ViewPointer();
    Result<TxnHandle> txn = begin_reading(kv_);
    if (!txn.ok()) return std::move(txn.failure());
    const std::string& key = window_[selected_].key;
    memlith_bytes value{};
    const std::int32_t code = memlith_kv_get(txn->get(), map_, key.data(), key.size(), &value);
    if (code != MEMLITH_OK) return library_failure(code, "reading the record");
    const auto* const at = static_cast<const char*>(value.data);
    return view_of_bytes(title() + " > " + escaped(key),
                         std::vector<char>(at, at + std::min<std::uint64_t>(value.size, kShownBytes)), value.size);
  }
  [[nodiscard]] std::string_view searched() const override { return "key"; }
  MaybeFailure search(const std::string& text) override {
    const std::optional<std::string> key = unescaped(text);
    if (!key.has_value()) return tool_failure(MEMLITH_INVALID, "a backslash begins \\xNN, a byte");
    selected_ = 0;
    return load(*key, true, std::max<std::size_t>(window_.size(), 1));
  }

 private:
  static constexpr std::size_t kBeginBytes = 80;
  struct Record {
    std::string key;
    std::uint64_t bytes = 0;
    std::string begin;
  };
  // Loads `count` records from the key on, or, backwards, those before it; an empty key is the end of the map.
  MaybeFailure load(const std::string& from, bool forward, std::size_t count) {
    Result<TxnHandle> txn = begin_reading(kv_);
    if (!txn.ok()) return std::move(txn.failure());
    memlith_kv_cursor* cursor = nullptr;  // freed with its transaction
    std::int32_t code = memlith_kv_cursor_open(txn->get(), map_, &cursor);
    if (code != MEMLITH_OK) return library_failure(code, "reading the map");
    const memlith_bytes end{from.data(), from.size()};
    if (!from.empty()) code = memlith_kv_cursor_set_bounds(cursor, forward ? &end : nullptr, forward ? nullptr : &end);
    std::vector<Record> found;
    while (code == MEMLITH_OK && found.size() < count) {
      code = forward ? memlith_kv_cursor_next(cursor) : memlith_kv_cursor_prev(cursor);
      if (code != MEMLITH_OK) break;
      memlith_bytes key{};
      memlith_bytes value{};
      code = memlith_kv_cursor_current(cursor, &key, &value);
      if (code != MEMLITH_OK) break;
      found.push_back({{static_cast<const char*>(key.data), key.size},
                       value.size,
                       {static_cast<const char*>(value.data), std::min<std::uint64_t>(value.size, kBeginBytes)}});
    }
    if (code != MEMLITH_OK && memlith_category(code) != MEMLITH_NOT_FOUND) return library_failure(code, "reading");
    if (!forward) std::reverse(found.begin(), found.end());
    window_ = std::move(found);
    return {};
  }
  MaybeFailure step_back(std::size_t records, std::size_t height) {
    const std::vector<Record> before = window_;
    if (auto failure = load(before.front().key, false, records)) return failure;
    const std::string first = window_.empty() ? before.front().key : window_.front().key;
    return load(first, true, height);
  }
  MaybeFailure step_on(std::size_t height) {
    const std::vector<Record> before = window_;
    if (auto failure = load(before.back().key, true, 2)) return failure;
    const bool more = window_.size() == 2;
    const std::size_t first = more && before.size() > 1 ? 1 : 0;
    if (auto failure = load(before[first].key, true, height)) return failure;
    selected_ = window_.empty() ? 0 : window_.size() - 1;
    return {};
  }

  SharedKv kv_;
  memlith_kv_map map_;
  std::vector<Record> window_;
  std::size_t selected_ = 0;
};

// The calls of a durable run.
class CallsView : public NumberedView {
 public:
  CallsView(std::string title, std::vector<steps::Call> calls)
      : NumberedView(std::move(title)), calls_(std::move(calls)) {}
  Result<ViewPointer> enter() override {
    if (calls_.empty()) return ViewPointer();
    const std::string& bytes = calls_[selected()].payload;
    return view_of_bytes(fmt::format("{} > {}", title(), selected()), {bytes.begin(), bytes.end()}, bytes.size());
  }

 protected:
  [[nodiscard]] std::uint64_t count() override { return calls_.size(); }
  [[nodiscard]] std::string line(std::uint64_t number) override { return line_of(calls_[number], number, false); }

 private:
  std::vector<steps::Call> calls_;
};

// The durable runs of a store, in the map that keeps them.
class RunsView : public NumberedView {
 public:
  static Result<ViewPointer> open(std::string title, SharedKv kv, memlith_kv_map map) {
    auto view = std::make_unique<RunsView>(std::move(title), std::move(kv), map);
    if (auto failure = view->load()) return std::move(*failure);
    return ViewPointer(std::move(view));
  }
  RunsView(std::string title, SharedKv kv, memlith_kv_map map)
      : NumberedView(std::move(title)), kv_(std::move(kv)), map_(map) {}
  Result<ViewPointer> enter() override {
    if (runs_.empty()) return ViewPointer();
    const std::string& id = runs_[selected()].id;
    std::vector<steps::Call> calls;
    std::optional<Failure> wrong;
    const std::string prefix = steps::detail::calls_prefix(id);
    auto failure = for_each(prefix, steps::detail::behind(prefix), [&](std::string_view, std::string_view value) {
      auto call = steps::detail::unpacked_call(id, static_cast<std::uint32_t>(calls.size()), value);
      if (!call) return (wrong = tool_failure(call.error().category(), call.error().message())), false;
      calls.push_back(std::move(*call));
      return true;
    });
    if (!failure) failure = std::move(wrong);
    if (failure) return std::move(*failure);
    return ViewPointer(std::make_unique<CallsView>(title() + " > " + id, std::move(calls)));
  }
  [[nodiscard]] std::string_view searched() const override { return "run"; }
  MaybeFailure search(const std::string& text) override {
    const auto found =
        std::lower_bound(runs_.begin(), runs_.end(), text, [](const auto& run, auto& id) { return run.id < id; });
    select(static_cast<std::uint64_t>(found - runs_.begin()));
    return {};
  }

 protected:
  [[nodiscard]] std::uint64_t count() override { return runs_.size(); }
  [[nodiscard]] std::string line(std::uint64_t number) override {
    return line_of(runs_[number], steps::name_of(runs_[number].status), 24);
  }

 private:
  MaybeFailure for_each(const std::string& from, const std::string& to, const Visit& visit) const {
    Result<TxnHandle> txn = begin_reading(kv_);
    if (!txn.ok()) return std::move(txn.failure());
    return for_each_record(txn->get(), map_, from, to, visit);
  }
  MaybeFailure load() {
    const std::string prefix = steps::detail::key('r', {});
    std::optional<Failure> wrong;
    auto failure = for_each(prefix, steps::detail::behind(prefix), [&](std::string_view key, std::string_view value) {
      auto run = steps::detail::unpacked_run(key.substr(prefix.size()), value);
      if (!run) return (wrong = tool_failure(run.error().category(), run.error().message())), false;
      runs_.push_back(std::move(*run));
      return true;
    });
    return failure ? std::move(failure) : std::move(wrong);
  }

  SharedKv kv_;
  memlith_kv_map map_;
  std::vector<steps::RunInfo> runs_;
};

// The maps of a kv store.
class MapsView : public NumberedView {
 public:
  MapsView(std::string title, SharedKv kv) : NumberedView(std::move(title)), kv_(std::move(kv)) {
    char name[MEMLITH_KV_NAME_BYTES_MAX + 1];
    while (memlith_kv_map_at(kv_.get(), names_.size(), name, sizeof name) == MEMLITH_OK) names_.emplace_back(name);
  }
  Result<ViewPointer> enter() override {
    if (names_.empty()) return ViewPointer();
    const std::string& name = names_[selected()];
    memlith_kv_map map = 0;
    const std::int32_t code = memlith_kv_map_open(kv_.get(), name.c_str(), 0, &map);
    if (code != MEMLITH_OK) return library_failure(code, "opening the map");
    if (name == steps::detail::kMap) return RunsView::open(title() + " > runs", kv_, map);
    return ViewPointer(std::make_unique<MapView>(title() + " > " + name, kv_, map));
  }

 protected:
  [[nodiscard]] std::uint64_t count() override { return names_.size(); }
  [[nodiscard]] std::string line(std::uint64_t number) override {
    const std::string& name = names_[number];
    memlith_kv_map map = 0;
    Result<TxnHandle> txn = begin_reading(kv_);
    std::uint64_t records = 0;
    std::uint64_t bytes = 0;
    if (name == steps::detail::kMap) return "durable runs";
    const bool known = txn.ok() && memlith_kv_map_open(kv_.get(), name.c_str(), 0, &map) == MEMLITH_OK &&
                       memlith_kv_estimate(txn->get(), map, nullptr, nullptr, &records, &bytes) == MEMLITH_OK;
    if (!known) return escaped(name);
    return fmt::format("{:<32} about {} records, {}", escaped(name), records, human_bytes(bytes));
  }

 private:
  SharedKv kv_;
  std::vector<std::string> names_;
};

// ---- application logs ------------------------------------------------------------------------------------------

class EntriesView : public NumberedView {
 public:
  EntriesView(std::string title, std::shared_ptr<memlith_applog> log)
      : NumberedView(std::move(title)), log_(std::move(log)) {}
  Result<ViewPointer> enter() override {
    if (count() == 0) return ViewPointer();
    std::vector<char> bytes(kShownBytes);
    std::uint64_t size = 0;
    const std::uint64_t number = first() + selected();
    const std::int32_t code = memlith_applog_get(log_.get(), number, bytes.data(), bytes.size(), &size);
    if (code != MEMLITH_OK) return library_failure(code, "reading the entry");
    bytes.resize(std::min<std::uint64_t>(size, kShownBytes));
    return view_of_bytes(fmt::format("{} > {}", title(), number), std::move(bytes), size);
  }
  [[nodiscard]] std::string_view searched() const override { return "number"; }
  MaybeFailure search(const std::string& text) override {
    Result<std::uint64_t> number = number_of(text, "number of an entry");
    if (!number.ok()) return std::move(number.failure());
    if (*number < first() || *number - first() >= count()) {
      return tool_failure(MEMLITH_INVALID, fmt::format("there are entries {} to {}", first(), first() + count() - 1));
    }
    select(*number - first());
    return {};
  }

 protected:
  [[nodiscard]] std::uint64_t count() override { return info().durable - info().consumed; }
  [[nodiscard]] std::string line(std::uint64_t number) override {
    char begin[64];
    std::uint64_t size = 0;
    const std::uint64_t entry = first() + number;
    if (memlith_applog_get(log_.get(), entry, begin, sizeof begin, &size) != MEMLITH_OK) {
      return fmt::format("{:>12}  is gone", entry);
    }
    return fmt::format("{:>12} {:>10}  {}", entry, size,
                       escaped({begin, static_cast<std::size_t>(std::min<std::uint64_t>(size, sizeof begin))}));
  }

 private:
  [[nodiscard]] memlith_applog_info info() const {
    memlith_applog_info info{};
    info.struct_size = sizeof info;
    (void)memlith_applog_get_info(log_.get(), &info);
    return info;
  }
  [[nodiscard]] std::uint64_t first() const { return info().consumed + 1; }
  std::shared_ptr<memlith_applog> log_;
};

// ---- heaps -----------------------------------------------------------------------------------------------------

// The elements of a container, or the members of a struct, one a line.
class ValueView : public NumberedView {
 public:
  ValueView(std::string title, Json value) : NumberedView(std::move(title)), value_(std::move(value)) {}
  // Null where there is nothing behind the value.
  static ViewPointer of(std::string title, const Json& value) {
    if (value.is_array()) return std::make_unique<ValueView>(std::move(title), value);
    if (!value.is_string()) return {};
    const std::string bytes = unescaped(value.get_ref<const std::string&>()).value_or("");
    return view_of_bytes(std::move(title), {bytes.begin(), bytes.end()}, bytes.size());
  }
  Result<ViewPointer> enter() override {
    if (value_.empty()) return ViewPointer();
    return of(fmt::format("{} > {}", title(), selected()), value_[selected()]);
  }
  [[nodiscard]] std::string_view searched() const override { return "number"; }
  MaybeFailure search(const std::string& text) override {
    Result<std::uint64_t> number = number_of(text, "number of an element");
    if (!number.ok()) return std::move(number.failure());
    if (*number >= value_.size()) return tool_failure(MEMLITH_INVALID, fmt::format("there are {}", value_.size()));
    select(*number);
    return {};
  }

 protected:
  [[nodiscard]] std::uint64_t count() override { return value_.size(); }
  [[nodiscard]] std::string line(std::uint64_t number) override {
    return fmt::format("{:>8}  {}", number, value_[number].dump());
  }

 private:
  const Json value_;
};

// The named objects of a heap, with the types that the program gave them.
class HeapView : public NumberedView {
 public:
  static Result<ViewPointer> open(std::string title, std::shared_ptr<memlith_heap> heap) {
    Result<std::vector<NamedType>> objects = objects_of(heap.get());
    if (!objects.ok()) return std::move(objects.failure());
    return ViewPointer(std::make_unique<HeapView>(std::move(title), std::move(heap), std::move(*objects)));
  }
  HeapView(std::string title, std::shared_ptr<memlith_heap> heap, std::vector<NamedType> objects)
      : NumberedView(std::move(title)), heap_(std::move(heap)), objects_(std::move(objects)) {}
  // An object whose type no name describes is shown as bytes.
  Result<ViewPointer> enter() override {
    if (objects_.empty()) return ViewPointer();
    const NamedType& object = objects_[selected()];
    std::string inner = title() + " > " + escaped(object.name);
    Result<Json> value = value_of_object(heap_.get(), object, kShownElements);
    if (!value.ok() && memlith_category(value.failure().code) != MEMLITH_UNSUPPORTED) return std::move(value.failure());
    if (!value.ok()) return ViewPointer(std::make_unique<BytesView>(inner, object.object, object.size, heap_));
    if (value->is_array() && value->size() == kShownElements) inner += fmt::format(", the first {}", kShownElements);
    if (ViewPointer view = ValueView::of(inner, *value)) return view;
    return ViewPointer(std::make_unique<ValueView>(inner, Json::array({*value})));
  }

 protected:
  [[nodiscard]] std::uint64_t count() override { return objects_.size(); }
  [[nodiscard]] std::string line(std::uint64_t number) override {
    const NamedType& object = objects_[number];
    return fmt::format("{:<32} {}", object.name.empty() ? "(root)" : escaped(object.name),
                       detail::readable_type_name(object.type));
  }

 private:
  std::shared_ptr<memlith_heap> heap_;
  std::vector<NamedType> objects_;
};

// ---- the store -------------------------------------------------------------------------------------------------

class RegionsView : public NumberedView {
 public:
  RegionsView(std::string title, memlith_store* store) : NumberedView(std::move(title)), store_(store) {
    for (memlith_region_info info{};; info = {}) {
      info.struct_size = sizeof info;
      if (memlith_store_region_at(store_, regions_.size(), &info) != MEMLITH_OK) break;
      regions_.push_back({info.name, info.size});
    }
  }
  // As what the region is. A region that is none of memlith's structures is shown as bytes.
  Result<ViewPointer> enter() override {
    if (regions_.empty()) return ViewPointer();
    const std::string& name = regions_[selected()].name;
    const std::string inner = title() + " > " + name;
    memlith_kv* kv = nullptr;
    std::int32_t code = memlith_kv_open(store_, name.c_str(), nullptr, &kv);
    if (code == MEMLITH_OK) return ViewPointer(std::make_unique<MapsView>(inner, SharedKv(kv, KvCloser())));
    if (memlith_category(code) != MEMLITH_INCOMPATIBLE) return library_failure(code, "opening the kv store");
    memlith_applog* log = nullptr;
    code = memlith_applog_open(store_, name.c_str(), nullptr, &log);
    if (code == MEMLITH_OK) {
      const auto close = [](memlith_applog* each) { (void)memlith_applog_close(each); };
      return ViewPointer(std::make_unique<EntriesView>(inner, std::shared_ptr<memlith_applog>(log, close)));
    }
    if (memlith_category(code) != MEMLITH_INCOMPATIBLE) return library_failure(code, "opening the application log");
    memlith_region_options options{};
    options.struct_size = sizeof options;
    memlith_heap* heap = nullptr;
    code = memlith_heap_open(store_, name.c_str(), &options, &heap);
    if (code == MEMLITH_OK) {
      const auto close = [](memlith_heap* each) { (void)memlith_heap_close(each); };
      return HeapView::open(inner, std::shared_ptr<memlith_heap>(heap, close));
    }
    if (memlith_category(code) != MEMLITH_INCOMPATIBLE) return library_failure(code, "opening the heap");
    memlith_region* region = nullptr;
    code = memlith_region_open(store_, name.c_str(), &options, &region);
    if (code != MEMLITH_OK) return library_failure(code, "opening the region");
    const auto close = [](memlith_region* each) { (void)memlith_region_close(each); };
    std::shared_ptr<memlith_region> owner(region, close);
    const void* const at = memlith_region_address(region);
    const std::uint64_t size = memlith_region_size(region);
    return ViewPointer(std::make_unique<BytesView>(inner, at, size, std::move(owner)));
  }

 protected:
  [[nodiscard]] std::uint64_t count() override { return regions_.size(); }
  [[nodiscard]] std::string line(std::uint64_t number) override {
    return fmt::format("{:<32} {:>12}", escaped(regions_[number].name), human_bytes(regions_[number].bytes));
  }

 private:
  struct Shown {
    std::string name;
    std::uint64_t bytes = 0;
  };
  memlith_store* store_;
  std::vector<Shown> regions_;
};

// ---- the screen ------------------------------------------------------------------------------------------------

class Screen {
 public:
  Screen() {
    ::initscr();
    ::cbreak();
    ::noecho();
    ::keypad(stdscr, TRUE);
    ::set_escdelay(25);
    (void)::curs_set(0);
  }
  ~Screen() { ::endwin(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  [[nodiscard]] static std::size_t height() { return static_cast<std::size_t>(std::max(LINES - 2, 1)); }
  static void show(const std::string& title, const View::Lines& lines, const std::string& below) {
    ::erase();
    // The end of a long one says where we are.
    const auto columns = static_cast<std::size_t>(std::max(COLS, 8));
    put(0, title.size() > columns ? "..." + title.substr(title.size() - columns + 3) : title, A_REVERSE);
    for (std::size_t i = 0; i < lines.all.size(); ++i) {
      put(static_cast<int>(i) + 1, lines.all[i], i == lines.selected ? A_BOLD | A_UNDERLINE : A_NORMAL);
    }
    put(LINES - 1, below, A_DIM);
    ::refresh();
  }
  // Nothing, after Escape.
  static std::optional<std::string> ask(std::string_view what) {
    std::string text;
    for (;;) {
      put(LINES - 1, fmt::format("{}: {}", what, text), A_BOLD);
      ::refresh();
      const int key = ::getch();
      if (key == '\n' || key == KEY_ENTER) return text;
      if (key == 27 || key == ERR) return std::nullopt;
      if ((key == KEY_BACKSPACE || key == 127 || key == 8) && !text.empty()) text.pop_back();
      if (key >= 0x20 && key < 0x7f) text += static_cast<char>(key);
    }
  }

 private:
  static void put(int row, const std::string& text, int attributes) {
    ::move(row, 0);
    ::clrtoeol();
    ::attrset(attributes);
    ::addnstr(text.c_str(), COLS);
    ::attrset(A_NORMAL);
  }
};

std::optional<Motion> motion_of(int key) {
  switch (key) {
    case KEY_UP:
    case 'k': return Motion::up;
    case KEY_DOWN:
    case 'j': return Motion::down;
    case KEY_PPAGE:
    case 'b': return Motion::page_up;
    case KEY_NPAGE:
    case ' ': return Motion::page_down;
    case KEY_HOME:
    case 'g': return Motion::home;
    case KEY_END:
    case 'G': return Motion::end;
    default: return std::nullopt;
  }
}

class Browser {
 public:
  explicit Browser(memlith_store* store, const std::string& path) : store_(store) {
    views_.push_back(std::make_unique<RegionsView>(path, store));
  }
  // Until the user leaves.
  void run() {
    const Screen screen;
    while (!views_.empty()) {
      View& view = *views_.back();
      Result<View::Lines> lines = view.lines(Screen::height());
      if (!lines.ok()) tell(lines.failure());
      Screen::show(view.title(), lines.ok() ? *lines : View::Lines{}, below(view));
      const int key = ::getch();
      if (key == ERR) return;  // the terminal is gone
      said_.clear();
      act(view, key);
    }
  }

 private:
  void act(View& view, int key) {
    if (const auto motion = motion_of(key)) return tell(view.move(*motion, Screen::height()));
    switch (key) {
      case '\n':
      case KEY_ENTER:
      case KEY_RIGHT:
      case 'l': {
        Result<ViewPointer> next = view.enter();
        if (!next.ok()) return tell(next.failure());
        if (*next != nullptr) views_.push_back(std::move(*next));
        return;
      }
      case 27:
      case KEY_LEFT:
      case KEY_BACKSPACE:
      case 'h':
      case 'q': views_.pop_back(); return;
      case 'Q': views_.clear(); return;
      case '/': {
        if (view.searched().empty()) return;
        if (const auto text = Screen::ask(view.searched()); text.has_value()) tell(view.search(*text));
        return;
      }
      case 'r': return refresh();
      default: return;
    }
  }
  // A store that is followed moves on to its newest durable commit.
  void refresh() {
    std::uint64_t lsn = 0;
    const std::int32_t code = memlith_store_refresh(store_, &lsn);
    if (code != MEMLITH_OK) return tell(library_failure(code, "refreshing"));
    said_ = fmt::format("as of commit {}", lsn);
  }
  void tell(const MaybeFailure& failure) {
    if (failure.has_value()) said_ = failure->message;
  }
  [[nodiscard]] std::string below(const View& view) const {
    if (!said_.empty()) return said_;
    std::string keys = "arrows, PgUp, PgDn, Home, End; Enter opens, q goes back, Q ends, r refreshes";
    if (!view.searched().empty()) keys += fmt::format(", / goes to: {}", view.searched());
    return keys;
  }

  memlith_store* store_;
  std::vector<ViewPointer> views_;
  std::string said_;
};

// A writer may open the store beside the browser, if the kind of store can be followed.
Result<StoreHandle> open_to_browse(const StorePath& path) {
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_FOLLOW;
  Result<StoreHandle> followed = open_store(path, options);
  return followed.ok() ? std::move(followed) : open_store_to_look(path);
}

}  // namespace

MaybeFailure run_browse(const StoreArguments& arguments) {
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0) {
    return tool_failure(MEMLITH_INVALID, "browse needs a terminal",
                        "`memlith info`, `memlith kv scan` and `memlith dump` print what a store has.");
  }
  Result<StorePath> path = resolve_store_path(arguments.path);
  if (!path.ok()) return std::move(path.failure());
  Result<StoreHandle> store = open_to_browse(*path);
  if (!store.ok()) return std::move(store.failure());
  Browser(store->get(), path->path).run();
  return close_store(std::move(*store));
}

}  // namespace memlith::tool
#endif
