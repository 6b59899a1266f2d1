// From a type's name to its layout.
#include "dump_type.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "dump_text.hpp"
#include "memlith/btree.hpp"

namespace memlith::tool {

static_assert(sizeof(HeapText) == sizeof(memlith::string));
static_assert(sizeof(HeapVector) == sizeof(memlith::vector<int>));
static_assert(sizeof(HeapList) == sizeof(memlith::list<int>));
static_assert(sizeof(HeapBtree) == sizeof(memlith::btree_set<int>));

namespace {

constexpr std::uint64_t kTypeBytesMax = std::uint64_t{1} << 40;

constexpr std::uint64_t rounded(std::uint64_t bytes, std::uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

template <class T>
HeapType scalar(HeapType::Kind kind) {
  HeapType type;
  type.kind = kind;
  type.size = sizeof(T);
  type.alignment = alignof(T);
  return type;
}
template <class T>
HeapType number() {
  return scalar<T>(std::is_signed_v<T> ? HeapType::Kind::signed_number : HeapType::Kind::unsigned_number);
}

const std::map<std::string_view, HeapType>& plain_types() {
  static const std::map<std::string_view, HeapType> all{
      {"bool", scalar<bool>(HeapType::Kind::boolean)},
      {"char", number<char>()},
      {"signed char", number<signed char>()},
      {"unsigned char", number<unsigned char>()},
      {"std::byte", number<unsigned char>()},
      {"char8_t", number<char8_t>()},
      {"char16_t", number<char16_t>()},
      {"char32_t", number<char32_t>()},
      {"wchar_t", number<wchar_t>()},
      {"short", number<short>()},
      {"unsigned short", number<unsigned short>()},
      {"int", number<int>()},
      {"unsigned int", number<unsigned int>()},
      {"long", number<long>()},
      {"unsigned long", number<unsigned long>()},
      {"long long", number<long long>()},
      {"unsigned long long", number<unsigned long long>()},
      {"float", scalar<float>(HeapType::Kind::floating)},
      {"double", scalar<double>(HeapType::Kind::floating)},
      {"memlith::string", scalar<memlith::string>(HeapType::Kind::text)},
      {"std::__cxx11::basic_string<char, std::char_traits<char>, memlith::allocator<char> >",
       scalar<memlith::string>(HeapType::Kind::text)},
  };
  return all;
}

std::string_view without_blanks(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// "name<a, b<c, d> >" as the name and its arguments; without arguments if it has no brackets at its end.
struct Template {
  std::string_view name;
  std::vector<std::string_view> arguments;
};
Template split(std::string_view text) {
  Template parts{text, {}};
  const std::size_t open = text.find('<');
  if (open == std::string_view::npos || !text.ends_with('>')) return parts;
  parts.name = text.substr(0, open);
  std::string_view inside = text.substr(open + 1, text.size() - open - 2);
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < inside.size(); ++i) {
    const char each = inside[i];
    if (each == '<' || each == '(' || each == '[') ++depth;
    if (each == '>' || each == ')' || each == ']') --depth;
    if (each != ',' || depth != 0) continue;
    parts.arguments.push_back(without_blanks(inside.substr(begin, i - begin)));
    begin = i + 1;
  }
  parts.arguments.push_back(without_blanks(inside.substr(begin)));
  return parts;
}

std::optional<HeapType> type_of_text(std::string_view text);

// Members behind each other, each at a multiple of its alignment.
std::optional<HeapType> record_of(std::vector<HeapType> parts) {
  HeapType record;
  record.kind = HeapType::Kind::record;
  for (const HeapType& part : parts) {
    record.size = rounded(record.size, part.alignment);
    record.offsets.push_back(record.size);
    record.size += part.size;
    record.alignment = std::max(record.alignment, part.alignment);
    if (record.size > kTypeBytesMax) return std::nullopt;
  }
  if (parts.empty()) return std::nullopt;
  record.size = rounded(record.size, record.alignment);
  record.parts = std::move(parts);
  return record;
}

std::optional<HeapType> record_of_texts(const std::vector<std::string_view>& texts) {
  std::vector<HeapType> parts;
  for (const std::string_view text : texts) {
    std::optional<HeapType> part = type_of_text(text);
    if (!part) return std::nullopt;
    parts.push_back(std::move(*part));
  }
  return record_of(std::move(parts));
}

std::optional<HeapType> array_of(std::string_view element, std::optional<std::uint64_t> count) {
  std::optional<HeapType> part = type_of_text(element);
  if (!part || !count || *count == 0 || *count > kTypeBytesMax / part->size) return std::nullopt;
  HeapType array;
  array.kind = HeapType::Kind::array;
  array.size = part->size * *count;
  array.alignment = part->alignment;
  array.count = *count;
  array.parts.push_back(std::move(*part));
  return array;
}

template <class Container>
std::optional<HeapType> container_of(HeapType::Kind kind, std::optional<HeapType> element) {
  if (!element) return std::nullopt;
  HeapType container = scalar<Container>(kind);
  container.parts.push_back(std::move(*element));
  return container;
}

// Keys that load can compare, in an order that it knows.
bool is_key(const HeapType& type) {
  if (type.kind <= HeapType::Kind::text) return true;
  const bool is_made_of_keys = type.kind == HeapType::Kind::record || type.kind == HeapType::Kind::array;
  return is_made_of_keys && std::all_of(type.parts.begin(), type.parts.end(), is_key);
}

std::optional<HeapType> tree_of(const Template& text, std::string_view name) {
  const bool is_map = name.ends_with("map");
  const std::size_t least = is_map ? 3 : 2;
  if (text.arguments.size() < least) return std::nullopt;
  const std::string_view key_text = text.arguments[0];
  const std::string_view compare = text.arguments[least - 1];
  const std::optional<HeapType> key = type_of_text(key_text);
  if (!key || !is_key(*key) || key->kind == HeapType::Kind::record) return std::nullopt;
  if (compare != "std::less<void>" && split(compare).name != "std::less") return std::nullopt;
  const std::optional<HeapType> element = is_map ? record_of_texts({key_text, text.arguments[1]}) : key;
  std::optional<HeapType> tree = name.starts_with("btree")
                                     ? container_of<memlith::btree_set<int>>(HeapType::Kind::btree, element)
                                     : container_of<memlith::set<int>>(HeapType::Kind::tree, element);
  if (!tree) return std::nullopt;
  tree->is_map = is_map;
  tree->repeats_keys = name.starts_with("multi");
  return tree;
}

std::optional<HeapType> type_of_text(std::string_view text) {
  text = without_blanks(text);
  if (const auto plain = plain_types().find(text); plain != plain_types().end()) return plain->second;
  if (text.ends_with(']')) {  // "int [2][3]" is two of "int [3]"
    const std::size_t open = text.find(" [");
    if (open == std::string_view::npos || text.substr(0, open).find('(') != std::string_view::npos) return std::nullopt;
    const std::size_t close = text.find(']', open);
    const std::string_view inner = text.substr(close + 1);
    const std::string element = std::string(text.substr(0, open)) + (inner.empty() ? "" : " ") + std::string(inner);
    return array_of(element, number_in(text.substr(open + 2, close - open - 2)));
  }
  const Template parts = split(text);
  if (parts.arguments.empty()) return std::nullopt;
  const auto in_heap = [&parts] { return split(parts.arguments.back()).name == "memlith::allocator"; };
  for (const std::string_view name : {"map", "multimap", "set", "multiset", "btree_map", "btree_set"}) {
    if (parts.name == "memlith::" + std::string(name)) return tree_of(parts, name);
    if (parts.name == "std::" + std::string(name) && in_heap()) return tree_of(parts, name);
  }
  const std::string_view first = parts.arguments.front();
  if (parts.name == "std::vector" && in_heap() && first != "bool") {
    return container_of<memlith::vector<int>>(HeapType::Kind::vector, type_of_text(first));
  }
  if (parts.name == "std::__cxx11::list" && in_heap()) {
    return container_of<memlith::list<int>>(HeapType::Kind::list, type_of_text(first));
  }
  if (parts.name == "std::pair" && parts.arguments.size() == 2) {
    return record_of_texts({first.ends_with(" const") ? first.substr(0, first.size() - 6) : first, parts.arguments[1]});
  }
  if (parts.name == "std::array" && parts.arguments.size() == 2) {
    std::string_view count = parts.arguments[1];
    while (count.ends_with('u') || count.ends_with('l')) count.remove_suffix(1);
    return array_of(first, number_in(count));
  }
  if (parts.name == "std::optional") {
    std::optional<HeapType> content = type_of_text(first);
    if (!content) return std::nullopt;
    HeapType type;
    type.kind = HeapType::Kind::optional;
    type.alignment = content->alignment;
    type.size = rounded(content->size + 1, type.alignment);
    type.parts.push_back(std::move(*content));
    return type;
  }
  return std::nullopt;
}

std::optional<HeapType> type_of_symbol(std::string_view symbol) {
  constexpr std::string_view kBegin = "_ZTS";
  if (!symbol.starts_with(kBegin)) return std::nullopt;
  const std::string mangled(symbol.substr(kBegin.size()));
  int error = -1;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &error),
                                                         &std::free);
  return error == 0 ? type_of_text(text.get()) : std::nullopt;
}

}  // namespace

std::optional<HeapType> type_of_name(std::string_view name) {
  const std::size_t members = name.find(" {");
  if (members == std::string_view::npos) return type_of_symbol(name);
  if (!name.ends_with('}')) return std::nullopt;
  std::string_view rest = name.substr(members + 2, name.size() - members - 3);
  std::vector<HeapType> parts;
  while (!rest.empty()) {
    const std::string_view symbol = rest.substr(0, rest.find(", "));
    std::optional<HeapType> part = type_of_symbol(symbol);
    if (!part) return std::nullopt;
    parts.push_back(std::move(*part));
    rest.remove_prefix(std::min(symbol.size() + 2, rest.size()));
  }
  return record_of(std::move(parts));
}

}  // namespace memlith::tool
