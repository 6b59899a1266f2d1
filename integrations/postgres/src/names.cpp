#include "names.hpp"

namespace memlith_postgres {

namespace {

bool skip_digits(std::string_view& text) {
  std::size_t count = 0;
  while (count < text.size() && text[count] >= '0' && text[count] <= '9') ++count;
  text.remove_prefix(count);
  return count > 0;
}

bool skip(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

bool is_in_folder_of_relations(std::string_view path) {
  if (skip(path, "global/")) return path.find('/') == std::string_view::npos;
  if (skip(path, "base/")) return skip_digits(path) && skip(path, "/") && path.find('/') == std::string_view::npos;
  if (!skip(path, "pg_tblspc/") || !skip_digits(path) || !skip(path, "/PG_")) return false;
  const std::size_t end = path.find('/');
  if (end == std::string_view::npos) return false;
  path.remove_prefix(end + 1);
  return skip_digits(path) && skip(path, "/") && path.find('/') == std::string_view::npos;
}

}  // namespace

bool is_relation(std::string_view path) {
  if (path.size() > kPathBytesMax || !is_in_folder_of_relations(path)) return false;
  std::string_view name = path.substr(path.rfind('/') + 1);
  if (!skip_digits(name)) return false;
  for (const std::string_view fork : {"_fsm", "_vm", "_init"}) {
    if (skip(name, fork)) break;
  }
  return name.empty() || (skip(name, ".") && skip_digits(name) && name.empty());
}

bool is_wal(std::string_view path) {
  constexpr std::size_t kNameBytes = 24;
  return skip(path, "pg_wal/") && path.size() == kNameBytes &&
         path.find_first_not_of("0123456789ABCDEF") == std::string_view::npos;
}

std::string init_of(std::string_view path) {
  const std::size_t name = path.rfind('/') + 1;
  if (path.find("_init", name) != std::string_view::npos) return {};
  return std::string(path.substr(0, path.find_first_not_of("0123456789", name))) + "_init";
}

std::string_view within(std::string_view root, std::string_view path) {
  if (path.size() > root.size() && path.starts_with(root) && path[root.size()] == '/') {
    path.remove_prefix(root.size() + 1);
  }
  while (path.starts_with("./")) path.remove_prefix(2);
  return path;
}

}  // namespace memlith_postgres
