// The assembler of memlith-gcc and memlith-g++ (docs/compiler-pass.md): GCC runs it instead of `as`, which it runs with
// the same arguments on a changed text.
//
//  - Calls of functions of libraries that write into memory of their caller lead to ../runtime (wrapped.inc), and calls
//    of those at which a thread settles (settling.inc). If the file defines such a function itself, it has both names.
//  - In front of a call that tells of a store is a comparison of the address with the range of all regions (x86-64);
//    several calls share one where they can (checks.hpp).
//  - Inline assembly that writes to memory is reported, and so are stores of AVX-512 with masks.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "checks.hpp"

namespace {

using checks::trimmed;
using std::string_view;

const std::unordered_set<string_view> kLed = {
#define MEMLITH_WRAPPED(name) #name,
#define MEMLITH_SETTLING(type, name, ...) #name,
#include "../runtime/settling.inc"
#include "../runtime/wrapped.inc"
#undef MEMLITH_SETTLING
#undef MEMLITH_WRAPPED
};
constexpr string_view kBefore = "__memlith_before";  // in memlith/track_gcc.hpp
constexpr string_view kNoTrackFile = "memlith_no_track_file";

bool is_part_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '$';
}

// The words of a line that may be names of symbols.
template <class Act>
void each_name(string_view line, Act&& act) {
  for (std::size_t at = 0; at < line.size();) {
    if (!is_part_of_name(line[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < line.size() && is_part_of_name(line[end])) ++end;
    if (at == 0 || line[at - 1] != '%') act(at, line.substr(at, end - at));  // a register is no name
    at = end;
  }
}

bool is_text(string_view line) {
  return line.starts_with(".string") || line.starts_with(".ascii") || line.starts_with(".file");
}

// An operation of inline assembly may store to memory: its last operand is memory, or it names none.
bool may_store(string_view operation) {
  operation = trimmed(operation.substr(0, operation.find('#')));
  for (const string_view prefix : {"lock", "rep", "repe", "repz", "repne", "repnz"}) {
    if (operation.starts_with(prefix) && operation.size() > prefix.size() &&
        std::isspace(static_cast<unsigned char>(operation[prefix.size()])) != 0) {
      operation = trimmed(operation.substr(prefix.size()));
    }
  }
  const std::size_t blank = operation.find_first_of(" \t");
  const string_view name = operation.substr(0, blank);
  const string_view operands = blank == string_view::npos ? string_view{} : trimmed(operation.substr(blank));
  for (const string_view moves : {"stos", "movs", "ins"}) {
    if (name.starts_with(moves) && (operands.empty() || operands.find("%es:") != string_view::npos)) return true;
  }
  for (const string_view reads : {"cmp", "test", "call", "jmp", "push", "prefetch", "lea", "nop", "mul", "div", "imul",
                                  "idiv", "fld", "fild", "ldmxcsr", "clflush", "clwb", "."}) {
    if (name.starts_with(reads) && !name.starts_with("cmpxchg")) return false;
  }
  if (name == "bt" || name == "btl" || name == "btq") return false;
  std::size_t last = 0;
  int depth = 0;
  for (std::size_t at = 0; at < operands.size(); ++at) {
    depth += operands[at] == '(' ? 1 : operands[at] == ')' ? -1 : 0;
    if (operands[at] == ',' && depth == 0) last = at + 1;
  }
  const string_view target = name.starts_with("xchg") ? operands : operands.substr(last);
  return target.find('(') != string_view::npos && target.find("(%rsp)") == string_view::npos &&
         target.find("(%rip)") == string_view::npos;
}

class Text {
 public:
  explicit Text(const std::string& text) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      lines_.push_back(string_view(text).substr(at, end - at));
      at = end + 1;
    }
    learn();
  }

  std::string changed() {
    std::string out;
#if defined(__x86_64__)
    if (!is_intel_) plan_.emplace(lines_);
#endif
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (!plan_.has_value() || !plan_->is_dropped(i)) change(i, out);
    }
    for (const string_view name : defined_) {
      const std::string other = "__memlith_wrap_" + std::string(name);
      out += (weak_.contains(name) ? ".weak " : ".globl ") + other + "\n.hidden " + other + "\n.set " + other + ", " +
             std::string(name) + "\n";
    }
    return out;
  }

  // 0, or the exit code.
  [[nodiscard]] int complain() const {
    const char* const wanted = std::getenv("MEMLITH_TRACK_ASM");
    const string_view strictness = wanted != nullptr ? wanted : "warn";
    if (strictness == "allow") return 0;
    const char* const kind = strictness == "error" ? "error" : "warning";
    bool within = false;
    std::string place = "memlith-gcc";
    bool found = false;
    const auto report = [&](string_view what, string_view line) {
      found = true;
      std::cerr << place << ": " << kind << ": memlith: " << what << " may write to memory, which GCC does not tell; "
                << "call memlith_touch() for what it writes to a region: " << trimmed(line) << "\n";
    };
    for (const string_view line : lines_) {
      if (line == "#APP" || line == "#NO_APP") {
        within = line == "#APP";
        continue;
      }
      if (!within) {
        if (line.ends_with('}') && line.find("){%k") != string_view::npos) report("a vector operation", line);
        if (line.size() > 1 && line.back() == ':' && line.front() != '.') place = line.substr(0, line.size() - 1);
        continue;
      }
      if (line.starts_with("# ")) {
        // # 12 "file.c" 1
        std::istringstream words{std::string(line.substr(2))};
        std::string number;
        std::string file;
        if (words >> number >> file && file.size() > 2) place = file.substr(1, file.size() - 2) + ":" + number;
        continue;
      }
      bool stores = false;
      for (std::size_t at = 0; at <= line.size();) {
        const std::size_t end = std::min(line.find(';', at), line.size());
        stores = stores || may_store(line.substr(at, end - at));
        at = end + 1;
      }
      if (stores) report("inline assembly", line);
    }
    return found && strictness == "error" ? 1 : 0;
  }

 private:
  void learn() {
    std::unordered_set<string_view> labels;
    std::unordered_set<string_view> global;
    for (const string_view line : lines_) {
      if (line.empty()) continue;
      if (line.starts_with("\t.globl\t")) global.insert(trimmed(line.substr(8)));
      if (line.starts_with("\t.weak\t")) weak_.insert(trimmed(line.substr(7)));
      if (line.starts_with("\t.comm\t") || line.starts_with("\t.local\t")) {
        const std::size_t at = line.find('\t', 2) + 1;
        own_.insert(line.substr(at, line.find(',') - at));  // never called from elsewhere
      }
      if (const string_view text = trimmed(line); text.starts_with(".symver") || text.starts_with(".weakref")) {
        each_name(line, [this](std::size_t, string_view name) { own_.insert(name); });
      }
      if (line.starts_with("\t.set\t")) labels.insert(trimmed(line.substr(6, line.find(',') - 6)));
      // At link time, files with and without MEMLITH_NO_TRACK_FILE have become one.
      if (line.starts_with("\t.file\t\"<artificial>\"")) is_joined_ = true;
      if (line.starts_with("\t.intel_syntax")) is_intel_ = true;
      if (line.back() == ':' && is_part_of_name(line.front())) labels.insert(line.substr(0, line.size() - 1));
    }
    for (const string_view label : labels) {
      if (label.starts_with(kNoTrackFile) || label == "_ZL21memlith_no_track_file") is_untracked_ = true;
      if (!kLed.contains(label)) continue;
      own_.insert(label);
      if (global.contains(label) || weak_.contains(label)) defined_.push_back(label);
    }
    if (is_joined_) is_untracked_ = false;
  }

  [[nodiscard]] bool is_led(string_view name) const {
    return kLed.contains(name) && !own_.contains(name) && !weak_.contains(name);
  }

  void change(std::size_t number, std::string& out) {
    const string_view line = lines_[number];
    const string_view text = trimmed(line);
    if (text.starts_with("call") &&
        (text.find("__asan_") != string_view::npos || text.find(kBefore) != string_view::npos)) {
      if (is_untracked_) return;
      if (plan_.has_value() && !plan_->told_at(number).empty()) {
        check_all(plan_->told_at(number), out);
      } else {
        check(text, out);
      }
      return;
    }
    if (is_text(text)) {
      out.append(line).push_back('\n');
      return;
    }
    std::size_t from = 0;
    each_name(line, [&](std::size_t at, string_view name) {
      if (!is_led(name)) return;
      out.append(line.substr(from, at - from)).append("__memlith_wrap_").append(name);
      from = at + name.size();
    });
    out.append(line.substr(from)).push_back('\n');
  }

  void check_all(const std::vector<checks::Told>& all, std::string& out) {
    const std::string base = "%" + std::string(all.front().base->names[0]);
    const std::string label = ".Lmemlith" + std::to_string(checks_++);
    out += "\tcmpq\t__memlith_range+8(%rip), " + base + "\n\tjae\t" + label + "\n";
    for (const checks::Told& each : all) {
      out +=
          "\tleaq\t" + std::to_string(each.offset) + "(" + base + "), %rdi\n" + std::string(lines_[each.call]) + "\n";
    }
    out += label + ":\n";
  }

  // Most stores of a program go to other memory, which lies above all regions: two instructions instead of five.
  void check(string_view call, std::string& out) {
#if defined(__x86_64__)
    const bool is_before = call.find("__asan_store") != string_view::npos || call.find(kBefore) != string_view::npos;
    if (!is_intel_ && is_before && call.find('*') == string_view::npos) {
      const std::string label = ".Lmemlith" + std::to_string(checks_++);
      out += "\tcmpq\t__memlith_range+8(%rip), %rdi\n\tjae\t" + label + "\n\t";
      out.append(call).append("\n" + label + ":\n");
      return;
    }
#endif
    out.append("\t").append(call).push_back('\n');
  }

  std::vector<string_view> lines_;
  std::optional<checks::Plan> plan_;     // of AT&T's syntax on x86-64
  std::unordered_set<string_view> own_;  // led names that the file defines
  std::unordered_set<string_view> weak_;
  std::vector<string_view> defined_;  // those of own_ that other files may call
  bool is_joined_ = false;
  bool is_intel_ = false;
  bool is_untracked_ = false;
  unsigned checks_ = 0;
};

// The arguments that are inputs.
std::vector<int> inputs_of(int count, char** arguments) {
  std::vector<int> found;
  for (int i = 1; i < count; ++i) {
    const string_view argument = arguments[i];
    if (argument == "-o" || argument == "-I" || argument == "--defsym" || argument == "--debug-prefix-map" ||
        argument == "--MD") {
      ++i;
    } else if (argument == "-" || argument == "--" || !argument.starts_with('-')) {
      found.push_back(i);
    }
  }
  return found;
}

bool is_question(int count, char** arguments) {
  return std::any_of(arguments + 1, arguments + count, [](const char* each) {
    return string_view(each) == "--version" || string_view(each) == "--help";
  });
}

bool fail(string_view what) {
  std::cerr << "memlith: " << what << ": " << std::strerror(errno) << "\n";
  return false;
}

// The file, or with an empty path the standard input, is added to the text.
bool read(const std::string& path, std::string& text) {
  if (path.empty() || path == "-" || path == "--") {
    text.append(std::istreambuf_iterator<char>(std::cin), {});
    return true;
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail("cannot read " + path);
  text.append(std::istreambuf_iterator<char>(file), {});
  return true;
}

// A file in memory, for the assembler to read; its path, or nothing.
std::string kept(const std::string& text) {
  const int memory = ::memfd_create("assembly", 0);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(memory, text.data() + done, text.size() - done);
    if (written <= 0) {
      (void)fail("cannot keep the assembly in memory");
      return "";
    }
    done += static_cast<std::size_t>(written);
  }
  return "/proc/self/fd/" + std::to_string(memory);
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<char*> passed(arguments, arguments + count);
  std::string path;
  if (!is_question(count, arguments)) {
    const std::vector<int> inputs = inputs_of(count, arguments);
    std::string text;
    if (inputs.empty() && !read("", text)) return 1;
    for (const int input : inputs) {
      if (!read(arguments[input], text)) return 1;
    }
    Text lines(text);
    if (const int code = lines.complain(); code != 0) return code;
    path = kept(lines.changed());
    if (path.empty()) return 1;
    for (auto input = inputs.rbegin(); input != inputs.rend(); ++input) passed.erase(passed.begin() + *input);
    passed.push_back(path.data());
  }
  passed.push_back(nullptr);
  const char* const other = std::getenv("MEMLITH_AS");
  passed[0] = const_cast<char*>(other != nullptr ? other : "as");
  ::execvp(passed[0], passed.data());
  (void)fail("cannot run the assembler " + std::string(passed[0]) + "; install binutils");
  return 1;
}
