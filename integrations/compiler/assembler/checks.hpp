// How few instructions the calls that tell of stores may cost (x86-64, AT&T syntax): a plan for the lines of a file.
//
//  - A store to the stack or to a global is not told.
//  - The address is computed behind the comparison, where it is the sum of a register and a constant: the register is
//    compared.
//  - Later stores by the same register in the same basic block are told with the first one. A record comes before its
//    store in any case, and is held until the thread calls something.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace checks {

using std::string_view;

inline string_view trimmed(string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return text;
}

// A line of code.
struct Operation {
  string_view name;
  std::vector<string_view> operands;

  explicit Operation(string_view line) {
    line = trimmed(line.substr(0, line.find('#')));  // of -fverbose-asm
    const std::size_t blank = std::min(line.find_first_of(" \t"), line.size());
    name = line.substr(0, blank);
    string_view rest = trimmed(line.substr(blank));
    int depth = 0;
    std::size_t from = 0;
    for (std::size_t at = 0; at < rest.size(); ++at) {
      depth += rest[at] == '(' ? 1 : rest[at] == ')' ? -1 : 0;
      if (rest[at] != ',' || depth != 0) continue;
      operands.push_back(trimmed(rest.substr(from, at - from)));
      from = at + 1;
    }
    if (!rest.empty()) operands.push_back(trimmed(rest.substr(from)));
  }
};

// The names of a register's parts, without the percent sign.
struct Register {
  std::array<string_view, 5> names;
  bool survives_calls;

  [[nodiscard]] bool is(string_view operand) const {
    return operand.starts_with('%') && std::find(names.begin(), names.end(), operand.substr(1)) != names.end();
  }
  [[nodiscard]] bool is_mentioned(string_view line) const {
    for (std::size_t at = line.find('%'); at != string_view::npos; at = line.find('%', at + 1)) {
      std::size_t end = at + 1;
      while (end < line.size() && std::isalnum(static_cast<unsigned char>(line[end])) != 0) ++end;
      if (is(line.substr(at, end - at))) return true;
    }
    return false;
  }
};

inline constexpr Register kRegisters[] = {
    {{"rax", "eax", "ax", "al", "ah"}, false}, {{"rcx", "ecx", "cx", "cl", "ch"}, false},
    {{"rdx", "edx", "dx", "dl", "dh"}, false}, {{"rsi", "esi", "si", "sil"}, false},
    {{"r8", "r8d", "r8w", "r8b"}, false},      {{"r9", "r9d", "r9w", "r9b"}, false},
    {{"r10", "r10d", "r10w", "r10b"}, false},  {{"r11", "r11d", "r11w", "r11b"}, false},
    {{"rbx", "ebx", "bx", "bl", "bh"}, true},  {{"rbp", "ebp", "bp", "bpl"}, true},
    {{"r12", "r12d", "r12w", "r12b"}, true},   {{"r13", "r13d", "r13w", "r13b"}, true},
    {{"r14", "r14d", "r14w", "r14b"}, true},   {{"r15", "r15d", "r15w", "r15b"}, true},
};
inline constexpr Register kArgument{{"rdi", "edi", "di", "dil"}, false};

inline const Register* register_of(string_view operand) {
  for (const Register& each : kRegisters) {
    if (operand.size() > 1 && operand.substr(1) == each.names[0] && operand.front() == '%') return &each;
  }
  return nullptr;
}

// Code that changes only the registers that it names last.
inline bool is_plain(const Operation& operation) {
  static constexpr string_view kPlain[] = {
      "movq", "movl", "movw", "movb",  "movabsq", "movzbl", "movzwl", "movzbw", "movzbq", "movzwq", "leaq",
      "leal", "addq", "addl", "subq",  "subl",    "andq",   "andl",   "andb",   "andw",   "orq",    "orl",
      "orb",  "orw",  "xorq", "xorl",  "xorb",    "shlq",   "shll",   "shrq",   "shrl",   "sarq",   "sarl",
      "salq", "sall", "incq", "incl",  "decq",    "decl",   "negq",   "negl",   "notq",   "notl",   "cmpq",
      "cmpl", "cmpb", "cmpw", "testq", "testl",   "testb",  "testw",  "nop"};
  const auto names = [&](string_view prefix) { return operation.name.starts_with(prefix); };
  if (names("imul") || names("movs")) return operation.operands.size() > 1;
  if (names("maskmov") || names("vmaskmovdqu")) return false;  // stores to where %rdi points
  if (names("set") || names("cmov") || names("v")) return true;
  if (std::ranges::any_of(operation.operands, [](string_view each) { return each.starts_with("%xmm"); })) return true;
  return std::find(std::begin(kPlain), std::end(kPlain), operation.name) != std::end(kPlain);
}

// Where the thread of execution may come from or go elsewhere, or where more changes than what is named.
inline bool ends_block(string_view line) {
  if (line.ends_with(':')) {
    for (const string_view prefix : {".LVL", ".LBB", ".LBE", ".LBI", ".LEHB", ".LEHE", ".LVU"}) {
      if (line.starts_with(prefix)) return false;  // of debuggers and exceptions
    }
    return true;
  }
  if (line.starts_with('.'))
    return !(line.starts_with(".loc\t") || line.starts_with(".loc ") || line.starts_with(".cfi_"));
  if (line.starts_with('#')) return true;
  const Operation operation(line);
  for (const string_view prefix : {"j", "call", "ret", "leave", "enter", "cpuid", "xchg", "xadd", "mulx", "cmpxchg",
                                   "lock", "sys", "int", "loop", "push", "pop", "ud2", "hlt"}) {
    if (operation.name.starts_with(prefix)) return true;
  }
  return false;
}

// A call that tells of a store whose address is a register and a constant.
struct Told {
  std::size_t call = 0;            // its line
  std::size_t address = 0;         // the line that computes the address
  const Register* base = nullptr;  // null: the stack, or a global
  long offset = 0;
};

class Plan {
 public:
  explicit Plan(const std::vector<string_view>& lines)
      : lines_(lines), dropped_(lines.size()), first_of_(lines.size()) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (is_call(trimmed(lines[i]))) look(i);
    }
  }
  // The line is left out.
  [[nodiscard]] bool is_dropped(std::size_t line) const { return dropped_[line]; }
  // The stores that are told at this call, if their common register is to be compared; else empty.
  [[nodiscard]] const std::vector<Told>& told_at(std::size_t line) const { return first_of_[line]; }

  static bool is_call(string_view line) {
    return line.starts_with("call\t__asan_store") && line.find("storeN") == string_view::npos;
  }

 private:
  void look(std::size_t call) {
    const std::optional<Told> told = address_of(call);
    if (!told.has_value()) return;
    if (told->base == nullptr) {
      dropped_[call] = dropped_[told->address] = true;
      return;
    }
    dropped_[told->address] = true;
    if (const auto first = group_of(*told); first.has_value()) {
      first_of_[*first].push_back(*told);
      dropped_[call] = true;
      return;
    }
    first_of_[call].push_back(*told);
    if (told->base->survives_calls) groups_.push_back(call);
  }

  // The first call of the same basic block by the same register, which has not changed since.
  [[nodiscard]] std::optional<std::size_t> group_of(const Told& told) {
    for (auto first = groups_.rbegin(); first != groups_.rend(); ++first) {
      const Told& leader = first_of_[*first].front();
      if (leader.base == told.base && is_steady(*told.base, *first + 1, told.address)) return *first;
      if (!same_block(*first, told.call)) break;
    }
    return std::nullopt;
  }
  [[nodiscard]] bool same_block(std::size_t from, std::size_t to) const {
    for (std::size_t i = from + 1; i < to; ++i) {
      const string_view line = trimmed(lines_[i]);
      if (!line.empty() && !is_call(line) && ends_block(line)) return false;
    }
    return true;
  }
  // The register, which survives calls, has the same value at both lines, of one block.
  [[nodiscard]] bool is_steady(const Register& base, std::size_t from, std::size_t to) const {
    for (std::size_t i = from; i < to; ++i) {
      const string_view line = trimmed(lines_[i]);
      if (line.empty() || is_call(line)) continue;
      if (ends_block(line)) return false;
      if (line.front() == '.' || !base.is_mentioned(line)) continue;
      const Operation operation(line);
      if (operation.name.starts_with("cmp") || operation.name.starts_with("test")) continue;
      if (!operation.operands.empty() && base.is(operation.operands.back())) return false;
    }
    return true;
  }

  // Backwards to the line that computes the address: only plain code lies between, which does not use it.
  [[nodiscard]] std::optional<Told> address_of(std::size_t call) const {
    std::size_t at = call;
    for (;;) {
      if (at == 0) return std::nullopt;
      const string_view line = trimmed(lines_[--at]);
      if (line.empty()) continue;
      if (ends_block(line)) return std::nullopt;
      if (line.front() == '.') continue;
      const Operation operation(line);
      if (operation.operands.size() == 2 && operation.operands[1] == "%rdi") break;
      if (!is_plain(operation) || kArgument.is_mentioned(line)) return std::nullopt;
    }
    std::optional<Told> told = parsed(Operation(trimmed(lines_[at])));
    if (!told.has_value()) return std::nullopt;
    told->call = call;
    told->address = at;
    if (told->base != nullptr && is_changed(*told->base, at + 1, call)) return std::nullopt;
    if (told->base != nullptr && !told->base->survives_calls) told->base = copy_of(*told->base, call);
    return told;
  }
  // Some of this plain code changes the register.
  [[nodiscard]] bool is_changed(const Register& base, std::size_t from, std::size_t to) const {
    for (std::size_t i = from; i < to; ++i) {
      const string_view line = trimmed(lines_[i]);
      if (line.empty() || line.front() == '.') continue;
      const Operation operation(line);
      if (!operation.operands.empty() && base.is(operation.operands.back())) return true;
    }
    return false;
  }
  // A register that has the same value at the call and survives the call, if there is one; else the same.
  [[nodiscard]] const Register* copy_of(const Register& base, std::size_t call) const {
    for (std::size_t at = call; at > 0;) {
      const string_view line = trimmed(lines_[--at]);
      if (line.empty()) continue;
      if (ends_block(line)) break;
      if (line.front() == '.') continue;
      const Operation operation(line);
      if (!is_plain(operation)) break;
      if (operation.name == "movq" && base.is(operation.operands[0])) {
        const Register* const copy = register_of(operation.operands[1]);
        if (copy != nullptr && copy->survives_calls && !is_changed(*copy, at + 1, call)) return copy;
      }
      if (!operation.operands.empty() && base.is(operation.operands.back())) break;
    }
    return &base;
  }
  // `movq REGISTER, %rdi`, or `leaq` of a register and a constant that is not negative; or of the stack or a global.
  static std::optional<Told> parsed(const Operation& operation) {
    Told told;
    const string_view from = operation.operands[0];
    if (operation.name == "movq") {
      if (from == "%rsp") return told;
      told.base = register_of(from);
      return told.base != nullptr ? std::optional(told) : std::nullopt;
    }
    if (operation.name != "leaq" || !from.ends_with(')')) return std::nullopt;
    const std::size_t open = from.rfind('(');
    const string_view inner = from.substr(open + 1, from.size() - open - 2);
    if (inner == "%rip" || inner == "%rsp" || inner.starts_with("%rsp,")) return told;
    told.base = register_of(inner);
    const string_view number = from.substr(0, open);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), told.offset);
    const bool is_number = number.empty() || (error == std::errc() && end == number.data() + number.size());
    if (told.base == nullptr || !is_number || told.offset < 0) return std::nullopt;
    return told;
  }

  const std::vector<string_view>& lines_;
  std::vector<bool> dropped_;
  std::vector<std::vector<Told>> first_of_;
  std::vector<std::size_t> groups_;  // lines of calls at which others by the same register may be told
};

}  // namespace checks
