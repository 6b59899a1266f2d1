#include "archive/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/checksum.hpp"

namespace memlith::core {

namespace {

constexpr std::uint64_t kSeed = 0x6d616e6966657374;  // a constant: who reads it does not know the archive yet
constexpr std::string_view kFirstLine = "memlith archive 2\n";
constexpr std::string_view kFirstLineOfOld = "memlith archive 1\n";  // as long
static_assert(kFirstLine.size() == kFirstLineOfOld.size());
constexpr std::string_view kLastLine = "checksum ";

std::string hex(std::span<const std::uint8_t> bytes) {
  std::string result;
  for (const std::uint8_t each : bytes) result += fmt::format("{:02x}", each);
  return result;
}

bool from_hex(const std::string& text, std::span<std::uint8_t> bytes) {
  if (text.size() != 2 * bytes.size()) return false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto digit = [&text](std::size_t at) {
      const char c = text[at];
      return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    };
    const int high = digit(2 * i);
    const int low = digit(2 * i + 1);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return true;
}

std::string hex(const std::string& text) {
  return hex({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

bool from_hex(const std::string& word, std::string& text) {
  text.resize(word.size() / 2);
  return from_hex(word, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
}

std::uint64_t checksum_of(std::string_view text) { return checksum(std::as_bytes(std::span(text)), kSeed); }

// One line; false: it is not as it should be. `is_old`: of version 1.
bool parse_line(const std::string& line, bool is_old, Manifest& manifest) {
  std::istringstream words(line);
  std::string key;
  words >> key;
  const auto number = [&words](auto& value) { words >> std::dec >> value; };
  const auto identity = [&words](std::uint64_t& value) { words >> std::hex >> value; };
  std::string word;
  if (key == "archive") {
    identity(manifest.archive_id);
  } else if (key == "log") {
    identity(manifest.log_id);
  } else if (key == "kind") {
    words >> word;
    manifest.kind = word == "file" ? StoreKind::one_file : StoreKind::folder;
    if (word != "file" && word != "folder") return false;
  } else if (key == "file") {
    words >> word;
    if (!from_hex(word, manifest.file_name)) return false;
  } else if (key == "place") {
    words >> word;
    if (!from_hex(word, manifest.place)) return false;
  } else if (key == "session") {
    identity(manifest.session);
    words >> word;
    if (!from_hex(word, manifest.writer)) return false;
  } else if (key == "next") {
    number(manifest.next_segment);
    number(manifest.next_full);
  } else if (key == "run") {
    Run run;
    number(run.number);
    words >> run.why;
    number(run.begin.lsn.value);
    identity(run.begin.previous);
    number(run.end.lsn.value);
    identity(run.end.previous);
    number(run.first_segment);
    number(run.end_segment);
    number(run.begin_ns);
    number(run.end_ns);
    number(run.bytes);
    run.log_id = manifest.log_id;
    if (!is_old) {
      identity(run.log_id);
      number(run.earliest_ns);
    }
    manifest.runs.push_back(run);
  } else if (key == "full") {
    FullCopy full;
    number(full.number);
    number(full.run);
    number(full.from.lsn.value);
    identity(full.from.previous);
    number(full.complete_at.value);
    number(full.first_segment);
    number(full.made_ns);
    number(full.bytes);
    number(full.block_bytes);
    number(full.slot_bytes);
    number(full.slot_count);
    words >> word;
    if (!from_hex(word, full.client)) return false;
    manifest.fulls.push_back(full);
  } else {
    return false;
  }
  const bool complete = !words.fail();
  words >> word;
  return complete && words.eof();
}

// Runs follow each other, and their segments do.
bool runs_are_in_order(const Manifest& manifest) {
  std::uint64_t number = 0;
  std::uint64_t segment = 1;
  for (const Run& run : manifest.runs) {
    if (run.number <= number || run.end.lsn < run.begin.lsn) return false;
    if (run.first_segment < segment || run.end_segment < run.first_segment) return false;
    number = run.number;
    segment = run.end_segment;
  }
  return segment <= manifest.next_segment;
}

// Full copies follow each other, and each belongs to a run that reaches it.
bool fulls_are_in_order(const Manifest& manifest) {
  std::uint64_t number = 0;
  std::uint64_t in_run = 0;
  for (const FullCopy& full : manifest.fulls) {
    const Run* const run = manifest.find_run(full.run);
    if (full.number <= number || full.run < in_run || run == nullptr) return false;
    if (full.complete_at < full.from.lsn || full.from.lsn < run->begin.lsn || run->end.lsn < full.complete_at)
      return false;
    if (full.first_segment < run->first_segment || full.first_segment > run->end_segment) return false;
    number = full.number;
    in_run = full.run;
  }
  return number < manifest.next_full;
}

bool is_sane(const Manifest& manifest) {
  if (manifest.archive_id == 0 || manifest.log_id == 0) return false;
  if ((manifest.kind == StoreKind::one_file) == manifest.file_name.empty()) return false;
  if (manifest.file_name.find('/') != std::string::npos) return false;
  if (!runs_are_in_order(manifest) || !fulls_are_in_order(manifest)) return false;
  return std::all_of(manifest.fulls.begin(), manifest.fulls.end(), [](const FullCopy& full) {
    return is_log_block(full.block_bytes) && full.slot_bytes % 4096 == 0 && full.slot_bytes >= 2 * full.block_bytes &&
           full.slot_bytes <= kSlotBytesMax && full.slot_count >= 2 && full.slot_count <= kSlotCountMax &&
           full.from.lsn.value % full.block_bytes == 0;
  });
}

}  // namespace

const Run* Manifest::find_run(std::uint64_t number) const {
  const auto found = std::find_if(runs.begin(), runs.end(), [number](const Run& run) { return run.number == number; });
  return found == runs.end() ? nullptr : &*found;
}

bool Manifest::counts_anew(std::size_t index) const {
  MEMLITH_ASSERT(index < runs.size());
  if (index == 0) return true;
  const Run& run = runs[index];
  const Run& before = runs[index - 1];
  return run.why == "history" || run.log_id != before.log_id || run.begin.lsn < before.end.lsn;
}

std::string Manifest::text() const {
  std::string text(kFirstLine);
  text += fmt::format("archive {:x}\nlog {:x}\nkind {}\n", archive_id, log_id,
                      kind == StoreKind::one_file ? "file" : "folder");
  if (kind == StoreKind::one_file) text += fmt::format("file {}\n", hex(file_name));
  if (!place.empty()) text += fmt::format("place {}\n", hex(place));
  text += fmt::format("session {:x} {}\nnext {} {}\n", session, hex(writer), next_segment, next_full);
  for (const Run& run : runs) {
    text += fmt::format("run {} {} {} {:x} {} {:x} {} {} {} {} {} {:x} {}\n", run.number, run.why, run.begin.lsn.value,
                        run.begin.previous, run.end.lsn.value, run.end.previous, run.first_segment, run.end_segment,
                        run.begin_ns, run.end_ns, run.bytes, run.log_id, run.earliest_ns);
  }
  for (const FullCopy& full : fulls) {
    text += fmt::format("full {} {} {} {:x} {} {} {} {} {} {} {} {}\n", full.number, full.run, full.from.lsn.value,
                        full.from.previous, full.complete_at.value, full.first_segment, full.made_ns, full.bytes,
                        full.block_bytes, full.slot_bytes, full.slot_count, hex(full.client));
  }
  text += fmt::format("{}{:016x}\n", kLastLine, checksum_of(text));
  return text;
}

Result<Manifest> Manifest::parse(const std::string& text, const std::string& path) {
  const auto damaged = [&path](std::string_view how) {
    return fail(Errc::corrupt, Detail::read,
                "{}: the manifest of the archive is damaged: {}. Put back the file as it was; the parts of the archive "
                "beside it are of no use without it",
                path, how);
  };
  if (!text.starts_with("memlith archive ")) return damaged("it is not a manifest");
  const bool is_old = text.starts_with(kFirstLineOfOld);
  if (!is_old && !text.starts_with(kFirstLine)) {
    return fail(Errc::incompatible, Detail::version,
                "{}: this archive is of another version; this memlith reads 1 and 2", path);
  }
  const std::size_t last = text.rfind(kLastLine);
  if (last == std::string::npos || text.size() != last + kLastLine.size() + 17) return damaged("it was cut short");
  if (text.substr(last) != fmt::format("{}{:016x}\n", kLastLine, checksum_of(text.substr(0, last)))) {
    return damaged("its checksum is wrong");
  }
  Manifest manifest;
  std::istringstream lines(text.substr(kFirstLine.size(), last - kFirstLine.size()));
  for (std::string line; std::getline(lines, line);) {
    if (!parse_line(line, is_old, manifest)) return damaged("one of its lines means nothing");
  }
  if (!is_sane(manifest)) return damaged("its checksum is right but its content is invalid");
  return manifest;
}

Result<Manifest> Manifest::get(ArchiveTarget& target) {
  MEMLITH_TRY_ASSIGN(const std::vector<std::byte> bytes, get_whole(target, kName, kBytesMax));
  const std::string path = target.path_of(kName);
  if (bytes.empty()) return fail(Errc::not_found, Detail::open, "{}: it is empty; there is no archive", path);
  return parse(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), path);
}

Status Manifest::put(ArchiveTarget& target) const {
  MEMLITH_ASSERT(is_sane(*this));  // no reader would take another one
  const std::string content = text();
  return put_whole(target, kName, std::as_bytes(std::span(content)));
}

}  // namespace memlith::core
