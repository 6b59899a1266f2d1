// A folder that is held open by its descriptor. Floor: device.
//
// What is looked up relative to the descriptor is looked up in this folder, whatever its path leads to by then: the folder may be
// renamed or moved, another may be put in its place, and the program may change its current folder. The process has one descriptor
// for each folder, however many stores lie in it.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

namespace memlith::core {

class Folder {
 public:
  // Null, with errno, where the path leads to no folder, or to one that this process may not enter. Any thread.
  static std::shared_ptr<Folder> open(const std::string& path);
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // For openat(2) and its like.
  [[nodiscard]] int fd() const { return fd_; }
  // Makes the names in it durable. 0, or -1 with errno: EACCES where this process may enter the folder and not read it.
  [[nodiscard]] int sync() const;

 private:
  // One folder may be mounted twice, at one place for reading only: that counts as two.
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
