// docs/format.md, whose tables of fields are held against the structs that they describe.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace memlith::test {

struct Row {
  std::uint64_t offset;
  std::uint64_t bytes;
  std::string field;
  friend bool operator==(const Row&, const Row&) = default;
  friend void PrintTo(const Row& row, std::ostream* out) { *out << row.offset << " " << row.bytes << " " << row.field; }
};

inline std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (std::size_t begin = 1; begin < line.size();) {
    const std::size_t end = line.find('|', begin);
    std::string cell = line.substr(begin, end - begin);
    cell.erase(0, cell.find_first_not_of(' '));
    cell.erase(cell.find_last_not_of(' ') + 1);
    cells.push_back(cell);
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  return cells;
}

// Heading -> rows of the table with "offset | bytes | field | meaning" below it.
inline std::map<std::string, std::vector<Row>> tables() {
  std::ifstream file(MEMLITH_FORMAT_DOC);
  std::map<std::string, std::vector<Row>> result;
  std::string heading;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("### ")) heading = line.substr(4);
    if (!line.starts_with("|")) inside = false;
    if (line.starts_with("| offset | bytes | field |")) {
      inside = true;
    } else if (inside && !line.starts_with("|---")) {
      const auto cells = cells_of(line);
      result[heading].push_back({std::stoull(cells[0]), std::stoull(cells[1]), cells[2]});
    }
  }
  return result;
}

#define FIELD(type, field) \
  ::memlith::test::Row { offsetof(type, field), sizeof(type::field), #field }

// The table has exactly the struct's fields, at the struct's offsets, with the struct's sizes, without a gap.
inline void expect_table(const std::string& name, std::size_t struct_bytes, const std::vector<Row>& fields) {
  const auto documented = tables();
  const auto table = documented.find(name);
  ASSERT_NE(table, documented.end()) << name;
  EXPECT_EQ(table->second, fields) << name;
  std::uint64_t end = 0;
  for (const Row& row : table->second) {
    EXPECT_EQ(row.offset, end) << name << "." << row.field;
    end = row.offset + row.bytes;
  }
  EXPECT_EQ(end, struct_bytes) << name;
}

}  // namespace memlith::test
