#include "case.hpp"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

namespace memlith::lab {

using namespace core;

namespace {

constexpr char kLetters[] = {'k', 'l', 'g', 'p', 'e', 'b'};

std::string format_cut(const Cut& cut) {
  std::string text = cut.link == ' ' ? "" : std::string(1, cut.link);
  text += fmt::format("{}:", cut.at);
  if (cut.killed) text += 'x';
  for (std::size_t i = 0; i < cut.choices.size();) {
    const SimChoice& choice = cut.choices[i];
    text += kLetters[static_cast<std::size_t>(choice.fate)];
    if (choice.fate == SimFate::elsewhere || choice.fate == SimFate::elsewhere_too) {
      text += fmt::format("@{}", choice.offset);
      ++i;
      continue;
    }
    std::size_t end = i + 1;
    while (end < cut.choices.size() && cut.choices[end].fate == choice.fate) ++end;
    if (end - i > 1) text += std::to_string(end - i);
    i = end;
  }
  if (!cut.older_file.empty()) text += fmt::format("^{}@{}", cut.older_file, cut.older_at);
  if (!cut.rotten_file.empty()) {
    text += fmt::format("~{}@{}.{}", cut.rotten_file, cut.rotten_offset, cut.rotten_bit);
  }
  if (cut.flipped_read.has_value()) text += fmt::format("!{}", *cut.flipped_read);
  return text;
}

struct Reader {
  std::string_view rest;
  bool bad = false;
  std::uint64_t number() {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc{}) bad = true;
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    return value;
  }
  bool take(char c) {
    if (rest.empty() || rest.front() != c) return false;
    rest.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!take(c)) bad = true;
  }
  [[nodiscard]] bool digit() const { return !rest.empty() && rest.front() >= '0' && rest.front() <= '9'; }
};

bool parse_cuts(std::string_view text, Cuts& cuts) {
  Reader reader{text};
  while (!reader.rest.empty() && !reader.bad) {
    Cut cut;
    if (!cuts.empty()) {
      cut.link = reader.rest.front();
      if (cut.link != '/' && cut.link != '>' && cut.link != '+') return false;
      reader.rest.remove_prefix(1);
    }
    cut.at = reader.number();
    reader.expect(':');
    cut.killed = reader.take('x');
    for (bool more = true; more && !reader.bad && !reader.rest.empty();) {
      more = false;
      for (std::size_t fate = 0; fate < sizeof kLetters; ++fate) {
        if (!reader.take(kLetters[fate])) continue;
        more = true;
        SimChoice choice{static_cast<SimFate>(fate), 0};
        std::uint64_t count = 1;
        if (static_cast<SimFate>(fate) >= SimFate::elsewhere) {
          reader.expect('@');
          choice.offset = reader.number();
        } else if (reader.digit()) {
          count = reader.number();
        }
        if (count > 1'000'000) return false;
        cut.choices.insert(cut.choices.end(), count, choice);
        break;
      }
    }
    if (reader.take('^')) {
      const auto at = reader.rest.find('@');
      if (at == std::string_view::npos) return false;
      cut.older_file = reader.rest.substr(0, at);
      reader.rest.remove_prefix(at + 1);
      cut.older_at = reader.number();
    }
    if (reader.take('~')) {
      const auto at = reader.rest.find('@');
      if (at == std::string_view::npos) return false;
      cut.rotten_file = reader.rest.substr(0, at);
      reader.rest.remove_prefix(at + 1);
      cut.rotten_offset = reader.number();
      reader.expect('.');
      cut.rotten_bit = static_cast<std::uint8_t>(reader.number() & 7);
    }
    if (reader.take('!')) cut.flipped_read = reader.number();
    cuts.push_back(std::move(cut));
  }
  return !reader.bad && !cuts.empty();
}

}  // namespace

std::string format_case(const Case& the_case) {
  std::string text = fmt::format("{} seed={}", the_case.workload, the_case.seed);
  if (!the_case.steps.empty()) text += fmt::format(" steps={}", fmt::join(the_case.steps, ","));
  if (the_case.fault.has_value()) text += fmt::format(" fault={}:{}", name_of(*the_case.fault), the_case.nth);
  if (!the_case.mutant.empty()) text += " mutant=" + the_case.mutant;
  if (!the_case.cuts.empty()) {
    text += " cut=";
    for (const Cut& cut : the_case.cuts) text += format_cut(cut);
  }
  return text;
}

std::optional<Case> parse_case(const std::string& line, std::string& why) {
  Case result;
  std::istringstream words(line);
  words >> result.workload;
  if (result.workload.empty()) {
    why = "the line is empty";
    return std::nullopt;
  }
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    Reader reader{value};
    if (key == "seed") {
      result.seed = reader.number();
    } else if (key == "steps") {
      do result.steps.push_back(reader.number());
      while (!reader.bad && reader.take(','));
    } else if (key == "fault") {
      const auto colon = value.find(':');
      Fault fault{};
      if (colon == std::string::npos || !parse_fault(value.substr(0, colon), fault)) {
        why = "there is no fault \"" + value + "\"";
        return std::nullopt;
      }
      result.fault = fault;
      reader.rest.remove_prefix(colon + 1);
      result.nth = reader.number();
    } else if (key == "mutant") {
      result.mutant = value;
    } else if (key == "cut") {
      if (!parse_cuts(value, result.cuts)) reader.bad = true;
    } else {
      why = "what is \"" + word + "\"?";
      return std::nullopt;
    }
    if (reader.bad) {
      why = "cannot read \"" + word + "\"";
      return std::nullopt;
    }
  }
  return result;
}

bool let_rot(SimImage& image, const Cut& cut) {
  if (cut.rotten_file.empty()) return true;
  const auto found = image.files.find(cut.rotten_file);
  if (found == image.files.end() || cut.rotten_offset >= found->second->size()) return false;
  auto copy = std::make_shared<std::vector<std::byte>>(*found->second);
  (*copy)[cut.rotten_offset] ^= static_cast<std::byte>(1u << cut.rotten_bit);
  found->second = std::move(copy);
  return true;
}

bool put_older_file(SimImage& image, const SimTrace& trace, const Cut& cut) {
  if (cut.older_file.empty()) return true;
  if (cut.older_at > trace.records.size()) return false;
  const SimImage then = SimMedium(trace, cut.older_at).cached();
  const auto copy = then.files.find(cut.older_file);
  const auto found = image.files.find(cut.older_file);
  if (copy == then.files.end() || found == image.files.end() || *copy->second == *found->second) return false;
  found->second = copy->second;
  return true;
}

}  // namespace memlith::lab
