// A working image in a file in memory (memfd): the program gets descriptors of it and maps it shared, as often and
// where it likes, so the kernel keeps all mappings and all file I/O coherent. It takes memory for all data of the
// file. Floor: files.
//
// Stores are known of watched mappings (Watches); the owner knows what descriptors have written.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/descriptor.hpp"
#include "device/device.hpp"
#include "files/image_memory.hpp"
#include "files/watches.hpp"

namespace memlith::core {

class MemfdMemory final : public ImageMemory {
 public:
  // A file in memory with what `read` reads. NO_MEMORY: it would not fit; `path` is for the message.
  using Reader = std::function<Status(std::uint64_t offset, std::span<std::byte> target)>;
  static Result<Descriptor> read_into_memory(const std::string& path, std::uint64_t bytes, const Reader& read);

  explicit MemfdMemory(Descriptor memory) : memory_(std::move(memory)) {}
  ~MemfdMemory() override;
  MemfdMemory(const MemfdMemory&) = delete;
  MemfdMemory& operator=(const MemfdMemory&) = delete;

  [[nodiscard]] int descriptor() const { return memory_.get(); }
  Descriptor take() { return std::move(memory_); }
  // See Watches.
  Status watch(std::byte* address, std::uint64_t bytes, std::uint64_t offset);
  Status unwatch(const std::byte* address, std::uint64_t bytes, std::vector<Range>& stored);

  [[nodiscard]] const std::byte* base() const override { return base_; }
  Status reach(std::uint64_t bytes) override;
  Status read(std::uint64_t offset, std::span<std::byte> target) const override;
  [[nodiscard]] Result<std::uint64_t> length() const override;
  Status set_length(std::uint64_t bytes, std::uint64_t data_bytes) override;
  Result<bool> collect(std::uint64_t bytes, std::vector<Range>& stored) override;
  Status add_data(std::uint64_t begin, std::uint64_t end, std::vector<Range>& stored) override;
  Status restore(Range range, const Tracker::ReadHome& read, bool at_home) override;

 private:
  Descriptor memory_;
  std::byte* base_ = nullptr;  // the whole image, for reading; reaches beyond its end
  std::uint64_t mapped_bytes_ = 0;
  std::unique_ptr<Watches> watches_;  // null until a mapping is watched
};

}  // namespace memlith::core
