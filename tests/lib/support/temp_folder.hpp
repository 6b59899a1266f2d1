// A folder of its own for each test, below $MEMLITH_TEST_DIR, gone with the object; and whole files as strings.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

namespace memlith::test {

class TempFolder {
 public:
  explicit TempFolder(const std::string& parent = {}) {
    const char* const given = std::getenv("MEMLITH_TEST_DIR");
    std::string name = (!parent.empty() ? parent : given != nullptr ? given : "/tmp") + "/test-XXXXXX";
    std::filesystem::create_directories(std::filesystem::path(name).parent_path());
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "cannot make " << name;
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  EXPECT_TRUE(file.good()) << path;
}

// Every ordinary file below a folder, by its path relative to it.
inline std::map<std::string, std::string> read_folder(const std::string& path) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    files[std::filesystem::relative(entry.path(), path).string()] = read_file(entry.path().string());
  }
  return files;
}

// The opposite: makes the folder hold these files and nothing else.
inline void write_folder(const std::string& path, const std::map<std::string, std::string>& files) {
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  for (const auto& [name, content] : files) {
    const auto whole = std::filesystem::path(path) / name;
    std::filesystem::create_directories(whole.parent_path());
    write_file(whole.string(), content);
  }
}

}  // namespace memlith::test
