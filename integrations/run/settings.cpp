#include "settings.hpp"

#include <fnmatch.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace memlith::preload {

namespace {
constexpr std::string_view kLogSuffix = ".memlith";
}  // namespace

bool Settings::matches(std::string_view path) const {
  if (path.ends_with(kLogSuffix) || path.find(".memlith-") != std::string_view::npos) return false;
  const std::string whole(path);
  const char* const name = std::strrchr(whole.c_str(), '/');
  const char* const last = name == nullptr ? whole.c_str() : name + 1;
  for (const std::string& pattern : patterns) {
    const bool absolute = pattern.starts_with('/');
    if (::fnmatch(pattern.c_str(), absolute ? whole.c_str() : last, absolute ? FNM_PATHNAME : 0) == 0) return true;
  }
  return false;
}

std::string encode(const Settings& settings) {
  std::string text(1, static_cast<char>(settings.commit));
  text += ',' + std::to_string(settings.weak_ms) + ',' + std::to_string(settings.commit_every_ms);
  text += std::string(",") + (settings.report ? '1' : '0') + ',' + (settings.guard ? '1' : '0');
  text += std::string(",") + (settings.one_commit ? '1' : '0');
  for (const std::string& pattern : settings.patterns) text += '\n' + pattern;
  return text;
}

bool decode(const char* text, Settings& settings) {
  if (text == nullptr) return false;
  char commit = 0;
  int report = 0;
  int guard = 0;
  int one_commit = 0;
  if (std::sscanf(text, "%c,%" SCNu64 ",%" SCNu64 ",%d,%d,%d", &commit, &settings.weak_ms, &settings.commit_every_ms,
                  &report, &guard, &one_commit) != 6) {
    return false;
  }
  settings.commit = static_cast<CommitAt>(commit);
  settings.report = report != 0;
  settings.guard = guard != 0;
  settings.one_commit = one_commit != 0;
  for (const char* line = std::strchr(text, '\n'); line != nullptr;) {
    const char* const end = std::strchr(++line, '\n');
    settings.patterns.emplace_back(line, end == nullptr ? std::strlen(line) : static_cast<std::size_t>(end - line));
    line = end;
  }
  return !settings.patterns.empty();
}

}  // namespace memlith::preload
