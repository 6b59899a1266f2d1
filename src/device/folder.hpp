// A folder that is kept open by a descriptor. Floor: device.
//
// Names are looked up relative to the descriptor, and therefore in this folder, wherever its path leads by then: the
// folder may be renamed or moved, another folder may take its place, and the program may change its working directory.
// The process has one descriptor per folder, however many stores lie in the folder.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

namespace memlith::core {

class Folder {
 public:
  // Null, with errno, if there is no folder at the path or this process may not enter it. Any thread.
  static std::shared_ptr<Folder> open(const std::string& path);
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // For openat(2) and similar calls.
  [[nodiscard]] int fd() const { return fd_; }
  // Makes the names in the folder durable. 0, or -1 with errno: EACCES if this process may enter the folder but not
  // read it.
  [[nodiscard]] int sync() const;

 private:
  // One folder may be mounted twice, at one of the places read-only: that counts as two folders.
  struct Key {
    std::uint64_t mount = 0;
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    bool readable = false;
    auto operator<=>(const Key&) const = default;
  };
  struct Registry;
  static Registry& registry();

  explicit Folder(int fd) : fd_(fd) {}

  int fd_;
  Key key_;
};

}  // namespace memlith::core
