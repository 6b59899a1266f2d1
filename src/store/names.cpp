#include "store/names.hpp"

#include <fmt/format.h>

#include <charconv>

#include "store/archived.hpp"
#include "store/stats.hpp"

namespace memlith::core {

std::string file_log_name(const std::string& file_name) { return file_name + ".memlith"; }

std::string common_log_name(std::uint64_t log_id) { return fmt::format("common-{:016x}.memlith", log_id); }

StoreNames::StoreNames(StoreKind kind, const std::string& file_name) {
  const bool one_file = kind == StoreKind::one_file;
  if (one_file) file = file_name;
  log = one_file ? file_log_name(file_name) : "log";
  blocks = one_file ? log + "-blocks" : "blocks";
  stats = LiveStats::name_beside(log);
  archived = ArchivedNotice::name_beside(log);
}

std::string StoreNames::home(ObjectId id) const { return file.empty() ? fmt::format("objects/{}", id.value) : file; }

std::optional<ObjectId> StoreNames::object_named(std::string_view name) {
  std::uint32_t id = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
  if (error != std::errc{} || fmt::format("{}", id) != name) return std::nullopt;  // "01" is no name of object 1
  return ObjectId{id};
}

}  // namespace memlith::core
