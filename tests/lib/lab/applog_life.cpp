#include "applog_life.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <sstream>
#include <unordered_map>

#include "base/checksum.hpp"
#include "heap/heap.hpp"

namespace memlith::lab {

using namespace core;

namespace {

std::vector<std::byte> bytes_of_words(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> text_of_log(std::uint64_t consumed, const std::deque<std::string>& entries) {
  std::string text = fmt::format("a log\n{} consumed\n{} newest\n", consumed, consumed + entries.size());
  for (const std::string& entry : entries) text += entry + "\n";
  return bytes_of_words(text);
}

std::vector<std::byte> text_of_kv(const AppLogModel& model) {
  std::string text = "a kv store\n";
  for (const auto& [key, value] : model.records) text += key + "=" + value + "\n";
  return bytes_of_words(text);
}

Result<std::vector<std::byte>> text_of_object(Store& store, const ObjectInfo& object) {
  RegionOptions options;
  options.tracker = TrackerKind::touched;
  options.anywhere = true;
  MEMLITH_TRY_ASSIGN(const auto region, Region::open(store, object.name, options));
  AppLogModel model;
  if (object.name == kLogName || object.name == kAuditName) {
    MEMLITH_TRY_ASSIGN(const auto log, applog::AppLog::open(*region, {false, applog::WhenFull::fail, true}));
    MEMLITH_TRY(learn(*log, model));
    return text_of_log(model.consumed, model.entries);
  }
  MEMLITH_TRY_ASSIGN(const auto kv, kv::Kv::open(*region, {false, {}, true}));
  MEMLITH_TRY(kv->verify().status());
  MEMLITH_TRY(learn(*kv, model));
  return text_of_kv(model);
}

// A region of zeros is what a crash in the middle of making a structure leaves: each of them is absent then, and none
// says that something else is there. Status: which does not.
Status all_are_absent(Store& store, const ObjectInfo& object) {
  RegionOptions options;
  options.tracker = TrackerKind::touched;
  options.anywhere = true;
  MEMLITH_TRY_ASSIGN(const auto region, Region::open(store, object.name, options));
  if (region->size() < 2 * kPageBytes) return kOk;
  const auto wrong = [&object](const char* what, const Status& status) {
    if (status.category == Errc::not_found) return false;
    (void)fail(Errc::corrupt, Detail::object, "{}, in empty region \"{}\", is not absent: {}", what, object.name,
               status.ok() ? "it was opened" : last_error_text());
    return true;
  };
  const Status corrupt{Errc::corrupt, Detail::object, 0, 0};
  if (wrong("a kv store", kv::Kv::open(*region, {false, {}, true}).status())) return corrupt;
  if (wrong("a log", applog::AppLog::open(*region, {false, applog::WhenFull::fail, true}).status())) return corrupt;
  if (wrong("a heap", Heap::open(*region, {.create = false}).status())) return corrupt;
  return kOk;
}

// By the bytes of the object, because most states of a run are like an earlier one.
std::unordered_map<std::uint64_t, std::vector<std::byte>> g_shown;

}  // namespace

void AppLogModel::consume_to(std::uint64_t number) {
  while (consumed < number) {
    entries.pop_front();
    ++consumed;
  }
}

void AppLogModel::audit_to(std::uint64_t consumed_there, const std::string& entry) {
  audit.push_back(entry);
  while (audit_consumed < consumed_there) {
    audit.pop_front();
    ++audit_consumed;
  }
}

void AppLogModel::put_into(Content& content, const AppLogPlan& has) const {
  content.objects[kLogName] = text_of_log(consumed, entries);
  if (has.with_kv) content.objects[kKvName] = text_of_kv(*this);
  if (!has.with_audit) return;
  content.objects[kAuditName] = text_of_log(audit_consumed, audit);
  std::vector<std::byte>& tally = content.objects[kTallyName];
  tally.assign(kPageBytes, std::byte{0});
  std::memcpy(tally.data(), &consumed, sizeof consumed);
  std::memcpy(tally.data() + sizeof consumed, &consumed, sizeof consumed);
}

Status learn_audit(applog::AppLog& audit, AppLogModel& model) {
  AppLogModel found;
  MEMLITH_TRY(learn(audit, found));
  model.audit_consumed = found.consumed;
  model.audit = std::move(found.entries);
  return kOk;
}

Status learn(applog::AppLog& log, AppLogModel& model) {
  log.rewind();
  model.consumed = log.report().consumed;
  model.entries.clear();
  applog::AppLog::Entry entry;
  for (;;) {
    MEMLITH_TRY_ASSIGN(const bool more, log.read(0, entry));
    if (!more) break;
    model.entries.emplace_back(reinterpret_cast<const char*>(entry.content.data()), entry.content.size());
  }
  log.rewind();
  return kOk;
}

Status learn(kv::Kv& kv, AppLogModel& model) {
  model.records.clear();
  const auto map = kv.open_map("map", false, false);
  if (!map.ok()) return map.error().category == Errc::not_found ? kOk : map.error();
  kv::Transaction reader(kv, true);
  MEMLITH_TRY(reader.begin());
  return reader.for_each(*map, {}, std::nullopt, [&](std::string_view key, std::string_view value) {
    model.records[std::string(key)] = value;
    return true;
  });
}

bool is_mixture_of_lines(std::span<const std::byte> found, const std::vector<std::span<const std::byte>>& states) {
  const auto lines_of = [](std::span<const std::byte> text) {
    std::istringstream words(std::string(reinterpret_cast<const char*>(text.data()), text.size()));
    std::set<std::string> lines;
    for (std::string line; std::getline(words, line);) lines.insert(line);
    return lines;
  };
  std::set<std::string> all;
  for (const auto& state : states) all.merge(lines_of(state));
  const std::set<std::string> lines = lines_of(found);
  return std::includes(all.begin(), all.end(), lines.begin(), lines.end());
}

Status show_storeys(Store& store, Content& content) {
  for (const ObjectInfo& object : store.objects()) {
    const std::vector<std::byte>& found = content.objects[object.name];
    const bool blank = std::ranges::all_of(found, [](std::byte each) { return each == std::byte{0}; });
    if (blank && !store.one_file()) MEMLITH_TRY(all_are_absent(store, object));
    const bool is_log = object.name == kLogName || object.name == kAuditName;
    if (!is_log && object.name != kKvName) continue;
    std::vector<std::byte>& bytes = content.objects[object.name];
    std::uint64_t magic = 0;
    static_assert(applog::kIdentityOffset == kv::kHeaderOffset);
    const std::uint64_t at = kv::kHeaderOffset;
    if (bytes.size() >= at + sizeof magic) std::memcpy(&magic, bytes.data() + at, sizeof magic);
    if (magic != (is_log ? applog::kMagic : kv::kMagic)) continue;
    const std::uint64_t sum = checksum(bytes, object.id.value);
    if (const auto known = g_shown.find(sum); known != g_shown.end()) {
      bytes = known->second;
      continue;
    }
    MEMLITH_TRY_ASSIGN(bytes, text_of_object(store, object));
    g_shown[sum] = bytes;
  }
  return kOk;
}

}  // namespace memlith::lab
