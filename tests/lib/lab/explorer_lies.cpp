// Lies of the medium: bit rot, misdirected writes and flipped reads, and what may be said of a store after them.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "applog_life.hpp"
#include "explorer.hpp"
#include "heap_life.hpp"
#include "log/format.hpp"
#include "workload_stores.hpp"

namespace memlith::lab {

using namespace core;

namespace {
bool is_mixture(const History& history, std::size_t at, const Expected& expected, const Content& found) {
  std::vector<Content> states;
  for (std::size_t p = expected.vouched; p <= expected.last; ++p) {
    states.push_back(without_inventories(history.content(at, p)));
  }
  const Content content = without_inventories(found);  // a mixture of two heaps is none
  const auto some = [&states](auto&& suits) { return std::any_of(states.begin(), states.end(), suits); };
  for (const auto& [name, bytes] : content.objects) {
    if (name == kLogName || name == kAuditName || name == kKvName) {
      std::vector<std::span<const std::byte>> texts;
      for (const Content& state : states) {
        if (const auto object = state.objects.find(name); object != state.objects.end())
          texts.push_back(object->second);
      }
      if (!is_mixture_of_lines(bytes, texts)) return false;
      continue;
    }
    if (!some([&](const Content& state) {
          const auto object = state.objects.find(name);
          return object != state.objects.end() && object->second.size() == bytes.size();
        })) {
      return false;
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (!some([&](const Content& state) {
            const auto object = state.objects.find(name);
            // The part by which it grew is zeros until its bytes come.
            return object != state.objects.end() &&
                   (i < object->second.size() ? object->second[i] : std::byte{0}) == bytes[i];
          })) {
        return false;
      }
    }
  }
  return some([&](const Content& state) {
    return state.exists == content.exists && state.objects.size() == content.objects.size();
  });
}
}  // namespace

std::string Explorer::lie_verdict(const Run& run, std::size_t at, const Recovered& recovered, const Expected& expected,
                                  bool last_commit_may_go, FaultCount& count) const {
  if (!recovered.ok) {
    const bool clear =
        (recovered.status.category == Errc::corrupt || recovered.status.category == Errc::incompatible) &&
        recovered.error.find("sim:") != std::string::npos;
    if (!clear) return "the damage is reported as: " + recovered.error;
    ++count.detected;
    return {};
  }
  if (expected.allows(recovered.found, expected.first)) {
    ++count.harmless;
    return {};
  }
  // An application log and a kv store check what they find.
  if (last_commit_may_go && !recovered.unsound.empty() && recovered.content.objects.contains(kLogName)) {
    ++count.detected;
    return {};
  }
  // Nothing behind the newest frame vouches for it: its damage looks like a torn end. A checkpoint may have brought
  // some of its bytes home already, so every byte is that of one of the last states, but not all of the same.
  if (last_commit_may_go && is_mixture(run.history, at, expected, recovered.content)) {
    ++count.untellable;
    return {};
  }
  return fmt::format("damage went unnoticed: recovered {}, which is none of the states after commits {} to {}",
                     describe(recovered.content), last_commit_may_go ? expected.vouched : expected.first,
                     expected.last);
}

void Explorer::judge_lie(const Run& run, const SimImage& image, const Expected& expected, Fault fault,
                         bool last_commit_may_go) {
  (void)note_distinct(image.hash(), operation_);
  SimVolume volume(image);
  set_identity(kIdentity);
  const Recovered recovered = recover(volume, options_);
  ++tally_.recoveries;
  std::string wrong =
      lie_verdict(run, path_.back().at, recovered, expected, last_commit_may_go, at(tally_.faults, fault));
  if (!wrong.empty()) violated(std::move(wrong), image.hash());
}

// One of the file and its log is a copy that was taken earlier.
void Explorer::swap_moments(const Run& run, const SimMedium& medium, std::vector<SimChoice>& choices,
                            const Expected& expected) {
  if (random_.one_in(2)) draw_operations(choices);
  Cut& cut = path_.back();
  cut.choices = choices;
  cut.older_file = random_.one_in(2) ? options_.file_name : file_log_name(options_.file_name);
  cut.older_at = random_.below(medium.position() + 1);
  SimImage image = medium.cut(choices, kGarbageSeed);
  const bool put = put_older_file(image, run.volume.trace(), cut);
  if (put && says_its_moment(image)) {
    FaultCount& count = at(tally_.faults, Fault::other_moment);
    ++count.planned;
    ++count.fired;
    (void)note_distinct(image.hash(), operation_);
    SimVolume volume(image);
    set_identity(kIdentity);
    const Recovered recovered = recover(volume, options_);
    ++tally_.recoveries;
    std::string wrong = moment_verdict(run, recovered, expected, count);
    if (!wrong.empty()) violated(std::move(wrong), image.hash());
  }
  cut.older_file.clear();
}

// The kind of the in-use header with which the file may begin; 0: none.
std::uint64_t Explorer::in_use_kind() const {
  if (options_.in_use == InUse::caller) return stores::kCallerInUse;
  return kind_of(workload_.how.structure_in_use ? InUse::structure : options_.in_use);
}

// A file that was never marked, or whose moment is torn, tells nothing.
bool Explorer::says_its_moment(const SimImage& image) const {
  const auto& file = *image.files.at(options_.file_name);
  InUseHeader header{};
  if (file.size() >= sizeof header) std::memcpy(&header, file.data(), sizeof header);
  return header.kind == in_use_kind() && is_whole_moment(header.moment);
}

// The file begins with the mark; or the file is complete, but for a mark of which a failing disk let through a part.
bool Explorer::has_guard_in_it(std::span<const std::byte> bytes, std::span<const std::byte> content) const {
  if (bytes.size() < kInUseHeaderBytes || content.size() < kInUseHeaderBytes) return false;
  const std::uint64_t in_use = in_use_kind();
  const auto mark = std::as_bytes(std::span(&in_use, 1));
  if (std::equal(mark.begin(), mark.end(), bytes.begin())) return true;
  for (std::size_t i = 0; i < mark.size(); ++i) {
    if (bytes[i] != content[i] && bytes[i] != mark[i]) return false;
  }
  return std::equal(bytes.begin() + kInUseHeaderBytes, bytes.end(), content.begin() + kInUseHeaderBytes, content.end());
}

// A copy of the file without its log: a guarded file has the mark and is refused, or is complete. A
// file shorter than the mark has no room for it at its beginning and its end, and a write that ends as garbage is
// repaired from the log.
std::string Explorer::copy_wrong(const SimImage& image, const Recovered& recovered) const {
  const auto found = image.files.find(options_.file_name);
  const auto content = recovered.content.objects.find("file");
  if (options_.in_use == InUse::caller || in_use_kind() == 0 || found == image.files.end() ||
      content == recovered.content.objects.end())
    return {};
  // Also by an earlier cut: the life after it may have ended before it had repaired the file.
  const bool spoiled = std::any_of(path_.begin(), path_.end(), [](const auto& cut) {
    return std::any_of(cut.choices.begin(), cut.choices.end(),
                       [](const SimChoice& choice) { return choice.fate == SimFate::garbage; });
  });
  const std::vector<std::byte>& bytes = *found->second;
  if (spoiled || content->second.size() < kInUseHeaderBytes || bytes == content->second) return {};
  if (!has_guard_in_it(bytes, content->second)) return "a copy of the file alone is neither complete nor marked";
  const std::uint64_t in_use = in_use_kind();
  if (std::memcmp(bytes.data(), &in_use, sizeof in_use) != 0) return {};
  SimImage alone;
  alone.files[options_.file_name] = found->second;
  SimVolume volume(std::move(alone));
  StoreOptions options = options_;
  options.create = true;
  options.in_use = InUse::none;
  const auto opened = Store::open(volume, options);
  if (opened.ok()) return "a copy of the marked file alone was opened";
  if (opened.error().category == Errc::corrupt) return {};
  return fmt::format("a copy of the marked file alone says: {}", last_error_text());
}

// The two go together if nothing changed the file in between: then the log decides, and it is of the earlier moment or
// of this one.
std::string Explorer::moment_verdict(const Run& run, const Recovered& recovered, const Expected& expected,
                                     FaultCount& count) const {
  const Cut& cut = path_.back();
  if (!recovered.ok) {
    if (recovered.status.category != Errc::corrupt) return "a pair of two moments is reported as: " + recovered.error;
    ++count.detected;
    return {};
  }
  const Expected of_log = cut.older_file == options_.file_name ? expected : run.history.expected(cut.older_at);
  // Beside a log that was closed, a file counts with the length that it has. It may have grown ahead of commits that
  // this log has not: by zeros.
  const auto grown = [&](std::size_t commits) {
    Content content = run.history.content(cut.older_at, commits);
    std::vector<std::byte>& file = content.objects["file"];
    const auto found = recovered.content.objects.find("file");
    if (found == recovered.content.objects.end() || found->second.size() < file.size()) return false;
    file.resize(found->second.size());
    return content == recovered.content;
  };
  const bool has_grown = cut.older_file != options_.file_name && grown(of_log.last);
  if (has_grown || of_log.allows(recovered.found, of_log.first)) {
    ++count.harmless;
    return {};
  }
  return fmt::format("a file and a log of two moments were taken for a pair: recovered {}",
                     describe(recovered.content));
}

// A bit flips in what one of the recovery's reads returns.
void Explorer::flip_reads(const Run& run, const SimImage& image, const Expected& expected) {
  SimVolume counting(image);
  set_identity(kIdentity);
  const std::uint64_t reads = recover(counting, options_).reads_of_open;
  if (reads == 0) return;
  const std::uint64_t nth = random_.below(reads);
  path_.back().flipped_read = nth;
  SimVolume volume(image);
  volume.faults().plan(SimFaults::Kind::flip_bit, nth);
  FaultCount& count = at(tally_.faults, Fault::read_flip);
  ++count.planned;
  set_identity(kIdentity);
  const Recovered recovered = recover(volume, options_);
  tally_.recoveries += 2;
  if (volume.faults().fired() > 0) ++count.fired;
  std::string wrong = lie_verdict(run, path_.back().at, recovered, expected, true, count);
  if (!wrong.empty()) violated(std::move(wrong), image.hash());
  path_.back().flipped_read.reset();
}

}  // namespace memlith::lab
