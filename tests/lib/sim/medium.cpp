// The medium: images, traces, and what a power cut leaves.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/checksum.hpp"
#include "base/random.hpp"
#include "device/lines.hpp"
#include "sim/sim.hpp"

namespace memlith::core {

// ---- images and traces -----------------------------------------------------------------------------------------

std::uint64_t SimImage::hash() const {
  std::uint64_t value = 0;
  for (const auto& [name, bytes] : files) {
    value = checksum(std::as_bytes(std::span(name)), value + 1);
    value = checksum(*bytes, value);
  }
  return value;
}

std::string_view name_of(SimOp op) {
  constexpr std::string_view kNames[kSimOpCount] = {"write",        "flush",       "reserve",        "truncate",
                                                    "create",       "rename",      "remove",         "sync_folder",
                                                    "failed_flush", "make_folder", "written_through"};
  return kNames[static_cast<std::size_t>(op)];
}

std::string SimTrace::describe(std::size_t count) const {
  std::string text;
  for (std::size_t i = 0; i < std::min(count, records.size()); ++i) {
    const SimRecord& r = records[i];
    text += fmt::format("  {:4} {} file {} {}{} offset {} bytes {}\n", i, name_of(r.op), r.file, r.name,
                        r.to.empty() ? "" : " -> " + r.to, r.offset, r.data.empty() ? r.bytes : r.data.size());
  }
  return text;
}

SimTrace SimTrace::continued(std::size_t count, const SimTrace& next) const {
  SimTrace result;
  result.start = start;
  result.records.assign(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(count));
  // The files of the second program by the numbers that they have in this trace.
  std::map<std::string, std::uint32_t, std::less<>> names;
  std::uint32_t files = 0;
  for (const auto& [name, bytes] : start.files) names[name] = files++;
  for (const SimRecord& record : result.records) {
    if (record.op == SimOp::create) names[record.name] = files++;
    if (record.op == SimOp::remove) names.erase(record.name);
    if (record.op != SimOp::rename) continue;
    const std::uint32_t file = names.at(record.name);
    names.erase(record.name);
    names[record.to] = file;
  }
  std::vector<std::uint32_t> numbers;
  for (const auto& [name, bytes] : next.start.files) numbers.push_back(names.at(name));
  for (SimRecord record : next.records) {
    if (record.op == SimOp::create) numbers.push_back(files++);
    if (record.op != SimOp::sync_folder && record.op != SimOp::make_folder) record.file = numbers.at(record.file);
    result.records.push_back(std::move(record));
  }
  return result;
}

// ---- SimMedium -------------------------------------------------------------------------------------------------

SimMedium::SimMedium(const SimTrace& trace, std::size_t position) : trace_(trace) {
  for (const auto& [name, bytes] : trace.start.files) {
    names_[name] = static_cast<std::uint32_t>(files_.size());
    const auto birth = trace.start.births.find(name);
    files_.push_back({bytes, birth == trace.start.births.end() ? 0 : birth->second});
    latest_names_.push_back(name);
  }
  while (position_ < position) step();
}

namespace {
constexpr std::uint32_t kNoFile = ~std::uint32_t{0};
}

std::string_view sim_folder_of(std::string_view name) {
  const auto slash = name.rfind('/');
  return slash == std::string_view::npos ? std::string_view{} : name.substr(0, slash);
}

void SimMedium::apply(const SimTrace& trace, const Item& item, std::map<std::string, std::uint32_t, std::less<>>& names,
                      std::vector<std::vector<std::byte>*>& contents) {
  const SimRecord& record = trace.records[item.record];
  switch (item.op) {
    case SimOp::create: names[record.name] = item.file; break;
    case SimOp::remove: names.erase(record.name); break;
    case SimOp::rename:
      if (const auto found = names.find(record.name); found != names.end()) {
        const std::uint32_t file = found->second;
        names.erase(found);
        names[record.to] = file;
      }
      break;
    case SimOp::reserve:
      if (contents[item.file]->size() < record.bytes) contents[item.file]->resize(record.bytes);
      break;
    case SimOp::truncate: contents[item.file]->resize(record.bytes); break;
    case SimOp::write: {
      // A write that itself extends the file brings its own growth.
      auto& content = *contents[item.file];
      const std::uint64_t offset = record.offset + item.skip;
      if (content.size() < offset + item.bytes) content.resize(offset + item.bytes);
      std::memcpy(content.data() + offset, record.data.data() + item.skip, item.bytes);
      break;
    }
    case SimOp::flush:
    case SimOp::failed_flush:
    case SimOp::sync_folder:
    case SimOp::written_through:
    case SimOp::make_folder: break;
  }
}

void SimMedium::step() {
  MEMLITH_ASSERT(position_ < trace_.records.size());
  const std::size_t index = position_++;
  const SimRecord& record = trace_.records[index];
  switch (record.op) {
    case SimOp::write: add_items(record, index); break;
    case SimOp::create:
      MEMLITH_ASSERT(record.file == files_.size());
      files_.push_back({std::make_shared<std::vector<std::byte>>(), record.offset});
      latest_names_.push_back(record.name);
      pending_.push_back({record.op, record.file, index, 0, 0});
      break;
    case SimOp::rename: latest_names_[record.file] = record.to; [[fallthrough]];
    case SimOp::reserve:
    case SimOp::make_folder:
    case SimOp::truncate: pending_.push_back({record.op, record.file, index, 0, 0}); break;
    case SimOp::remove:
      latest_names_[record.file].clear();
      pending_.push_back({record.op, record.file, index, 0, 0});
      break;
    case SimOp::failed_flush:
      if (record.bytes != static_cast<std::uint64_t>(FailedFlush::unflushed)) forget(record);
      break;
    case SimOp::flush:
      make_durable([&](const Item& item) { return !is_name_change(item.op) && item.file == record.file; }, record.file);
      break;
    case SimOp::written_through:
      make_durable(
          [&](const Item& item) {
            const std::uint64_t at = trace_.records[item.record].offset + item.skip;
            return item.op == SimOp::write && item.file == record.file && at < record.offset + record.bytes &&
                   record.offset < at + item.bytes;
          },
          record.file);
      break;
    case SimOp::sync_folder:
      make_durable(
          [&](const Item& item) {
            return is_name_change(item.op) && sim_folder_of(trace_.records[item.record].name) == record.name;
          },
          kNoFile);
      break;
  }
}

// Applies what is covered to the medium, in order; the items are of one file, or changes of names.
void SimMedium::make_durable(const std::function<bool(const Item&)>& covered, std::uint32_t file) {
  std::vector<Item> rest;
  std::vector<std::vector<std::byte>*> contents(files_.size(), nullptr);
  std::shared_ptr<std::vector<std::byte>> changed;
  for (const Item& item : pending_) {
    if (!covered(item)) {
      rest.push_back(item);
      continue;
    }
    if (file != kNoFile && changed == nullptr) {
      changed = std::make_shared<std::vector<std::byte>>(*files_[file].durable);
      contents[file] = changed.get();
    }
    apply(trace_, item, names_, contents);
  }
  if (changed != nullptr) files_[file].durable = std::move(changed);
  pending_ = std::move(rest);
}

void SimMedium::add_items(const SimRecord& record, std::size_t index) {
  const std::uint64_t item_bytes = lines() ? kWordBytes : kSimSectorBytes;
  const auto is_write_of_it = [&](const Item& item) { return item.op == SimOp::write && item.file == record.file; };
  // A word that stays what it is need not be an item, unless an earlier write of it may still be lost.
  const bool may_leave_out = lines() && std::none_of(pending_.begin(), pending_.end(), is_write_of_it);
  const std::vector<std::byte>& before = *files_[record.file].durable;
  for (std::uint64_t skip = 0; skip < record.data.size();) {
    const std::uint64_t here = record.offset + skip;
    const std::uint64_t bytes = std::min<std::uint64_t>(record.data.size() - skip, item_bytes - here % item_bytes);
    const bool same = may_leave_out && here + bytes <= before.size() &&
                      std::memcmp(before.data() + here, record.data.data() + skip, bytes) == 0;
    if (!same) pending_.push_back({record.op, record.file, index, skip, bytes});
    skip += bytes;
  }
}

// The writes before the failed flush leave the list of those that may still reach the medium.
void SimMedium::forget(const SimRecord& failed) {
  const auto how = static_cast<FailedFlush>(failed.bytes);
  auto content = std::make_shared<std::vector<std::byte>>(*files_[failed.file].durable);
  std::vector<std::vector<std::byte>*> contents(files_.size(), nullptr);
  contents[failed.file] = content.get();
  bool growth_lost = false;
  std::uint64_t number = 0;
  std::erase_if(pending_, [&](const Item& item) {
    if (item.file != failed.file || is_name_change(item.op)) return false;
    Random coin(failed.offset * 1000 + number++);
    const bool kept = how == FailedFlush::half_forgotten && coin.one_in(2);
    if (!kept && item.op != SimOp::write) growth_lost = true;
    const std::uint64_t end = trace_.records[item.record].offset + item.skip + item.bytes;
    if (kept && !(item.op == SimOp::write && growth_lost && end > content->size())) {
      apply(trace_, item, names_, contents);
    }
    return true;
  });
  files_[failed.file].durable = std::move(content);
  if (how != FailedFlush::dropped) forgot_ = true;
}

SimImage SimMedium::cached() const {
  if (!forgot_) return cut([](std::size_t) { return true; });
  return SimVolume(trace_, position_).image();
}

SimImage SimMedium::cut(const std::function<bool(std::size_t)>& keep) const {
  std::vector<SimChoice> choices(pending_.size());
  for (std::size_t i = 0; i < choices.size(); ++i) choices[i].fate = keep(i) ? SimFate::kept : SimFate::lost;
  return cut(choices, 0);
}

SimImage SimMedium::cut(std::span<const SimChoice> choices, std::uint64_t garbage_seed) const {
  MEMLITH_ASSERT(choices.size() == pending_.size());
  auto names = names_;
  std::vector<std::shared_ptr<std::vector<std::byte>>> changed(files_.size());
  std::vector<std::vector<std::byte>*> contents(files_.size(), nullptr);
  std::vector<bool> growth_lost(files_.size(), false);
  std::vector<std::string> folders_lost;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> torn_blocks;
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    const Item& item = pending_[i];
    const SimFate fate = choices[i].fate;
    const bool resizes = item.op == SimOp::reserve || item.op == SimOp::truncate;
    if (fate == SimFate::lost) {
      if (resizes) growth_lost[item.file] = true;
      if (item.op == SimOp::make_folder) folders_lost.push_back(trace_.records[item.record].name + "/");
      continue;
    }
    const SimRecord& record = trace_.records[item.record];
    const std::uint64_t place = record.offset + item.skip;
    if (item.op == SimOp::write && growth_lost[item.file]) {
      const auto& content = contents[item.file] != nullptr ? *contents[item.file] : *files_[item.file].durable;
      if (place + item.bytes > content.size()) continue;
    }
    if (!is_name_change(item.op) && contents[item.file] == nullptr) {
      changed[item.file] = std::make_shared<std::vector<std::byte>>(*files_[item.file].durable);
      contents[item.file] = changed[item.file].get();
    }
    if (fate != SimFate::elsewhere) apply(trace_, item, names, contents);
    if (item.op != SimOp::write) continue;
    auto& content = *contents[item.file];
    if (fate == SimFate::torn_block) torn_blocks.emplace_back(item.file, place);
    if (fate == SimFate::garbage) {
      Random random(garbage_seed + item.record * 4096 + item.skip);
      for (std::uint64_t at = 0; at < item.bytes; ++at) content[place + at] = static_cast<std::byte>(random.next());
    }
    if ((fate == SimFate::elsewhere || fate == SimFate::elsewhere_too) && choices[i].offset < content.size()) {
      const std::uint64_t bytes = std::min<std::uint64_t>(item.bytes, content.size() - choices[i].offset);
      std::memcpy(content.data() + choices[i].offset, record.data.data() + item.skip, bytes);
    }
  }
  for (const auto& [file, place] : torn_blocks) {
    auto& content = *contents[file];
    const std::uint64_t begin = place / kSimPhysicalBlockBytes * kSimPhysicalBlockBytes;
    Random random(garbage_seed + file * 4096 + begin);
    for (std::uint64_t at = begin; at < std::min<std::uint64_t>(content.size(), begin + kSimPhysicalBlockBytes); ++at) {
      content[at] = static_cast<std::byte>(random.next());
    }
  }
  SimImage image;
  image.lines = lines();
  image.forced_unit_access = trace_.start.forced_unit_access;
  image.whole_sectors = whole_sectors();
  for (const auto& [name, file] : names) {
    const auto holds = [&name](const std::string& folder) { return name.starts_with(folder); };
    if (std::any_of(folders_lost.begin(), folders_lost.end(), holds)) continue;
    image.files[name] = changed[file] != nullptr ? SimBytes(changed[file]) : files_[file].durable;
    image.births[name] = files_[file].birth;
  }
  return image;
}

}  // namespace memlith::core
