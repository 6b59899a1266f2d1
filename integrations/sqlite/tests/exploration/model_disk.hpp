// SQLite's "unix" VFS as a model in memory: files, what of them is on the medium, locks, the shared index. Every
// process of an exploration is a group of files here, which it leaves when it is killed.
//
// The kernel's part: a page of 4,096 bytes that was written is dirty. A flush takes the dirty pages when it begins and
// has them on the medium when it ends, together with those of flushes that began before. A flush that fails leaves its
// pages clean and not on the medium, and each descriptor that was open is told once (Linux's errseq).
#pragma once

#include <sqlite3.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace memlith::test::exploration {

constexpr std::size_t kKernelPageBytes = 4096;
constexpr int kShmLocks = 8;

struct OpenFile;

struct Inode {
  std::string name;
  std::string bytes;
  std::string durable;
  std::set<std::size_t> dirty;                               // pages
  std::map<int, std::map<std::size_t, std::string>> inside;  // by number: pages of flushes that have begun
  int flushes = 0;
  std::uint32_t errors = 0;  // failed flushes
  bool error_was_told = false;
  std::map<const OpenFile*, int> levels;  // of locks on the file
  std::vector<std::unique_ptr<std::array<unsigned char, 32768>>> index;
  std::set<const OpenFile*> index_users;
  std::array<const OpenFile*, kShmLocks> exclusive{};
  std::array<std::set<const OpenFile*>, kShmLocks> shared;
};

struct OpenFile {
  sqlite3_file base;
  std::shared_ptr<Inode>* inode;
  int process;
  std::uint32_t errors_told;
};

class ModelDisk {
 public:
  static ModelDisk& get();
  // The default VFS from now on, under the name "model".
  void install();

  // Called around the calls; null: not called.
  struct Hooks {
    std::function<void(const char* what)> point;
    std::function<void(std::uint64_t nanoseconds)> sleep;
    std::function<int()> process;
    std::function<void(const std::string& name)> wrote;  // what is on the medium, or may be, has changed
    std::function<void(bool granted)> asked_for_write_lock;
    std::function<void()> wrote_log;
  };
  Hooks hooks;
  std::uint64_t flush_ns = 300'000;
  std::uint64_t changes = 0;  // of what a power cut may leave
  int log_flushes = 0;
  int failing_log_flush = -1;  // the number of the one that fails

  // All files as they were when `image` was taken.
  using Image = std::map<std::string, std::string>;
  [[nodiscard]] Image image() const;
  void restore(const Image& image);
  // The database and its log after a power cut: the flushed bytes, and with `database_is_newest` also those that
  // the kernel wrote by itself.
  [[nodiscard]] std::pair<std::string, std::string> after_cut(const std::string& database, bool database_is_newest);
  void put(const std::string& name, std::string bytes);
  void remove(const std::string& name) {
    files_.erase(name);
    ++changes;
  }
  // Empty: there is no such file, or it is.
  [[nodiscard]] std::string bytes_of(const std::string& name) const {
    const auto found = files_.find(name);
    return found != files_.end() ? found->second->bytes : "";
  }
  // The process ends as it is: the kernel closes its files.
  void kill(int process);

 private:
  friend struct Methods;
  std::shared_ptr<Inode> find(const std::string& name);

  sqlite3_vfs vfs_{};
  std::map<std::string, std::shared_ptr<Inode>> files_;
  std::set<OpenFile*> open_;
};

}  // namespace memlith::test::exploration
