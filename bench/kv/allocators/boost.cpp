// Boost.Interprocess, whose best fit keeps free blocks in a red-black tree within them.
#include <fmt/format.h>
#include <sys/mman.h>

#include <boost/interprocess/indexes/iset_index.hpp>
#include <boost/interprocess/managed_external_buffer.hpp>
#include <boost/interprocess/mem_algo/rbtree_best_fit.hpp>
#include <boost/interprocess/sync/mutex_family.hpp>
#include <boost/version.hpp>

#include "allocators.hpp"
#include "kit/raw_device.hpp"

namespace memlith::tool {

namespace {

namespace ipc = boost::interprocess;
using BestFitBuffer =
    ipc::basic_managed_external_buffer<char, ipc::rbtree_best_fit<ipc::mutex_family, ipc::offset_ptr<void>>,
                                       ipc::iset_index>;

class BoostAllocator final : public TestedAllocator {
 public:
  BoostAllocator(void* memory, std::uint64_t bytes)
      : memory_(memory), bytes_(bytes), buffer_(ipc::create_only, memory, bytes) {}
  ~BoostAllocator() override { ::munmap(memory_, bytes_); }
  BoostAllocator(const BoostAllocator&) = delete;
  BoostAllocator& operator=(const BoostAllocator&) = delete;

  void* allocate(std::size_t bytes) override { return buffer_.allocate(bytes, std::nothrow); }
  void free(void* block) override { buffer_.deallocate(block); }
  [[nodiscard]] std::vector<std::span<const std::byte>> memory() const override {
    return {{static_cast<const std::byte*>(memory_), bytes_}};
  }

 private:
  void* memory_;
  std::uint64_t bytes_;
  BestFitBuffer buffer_;
};

Result<std::unique_ptr<TestedAllocator>> open_boost(const std::string&, std::uint64_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return errno_failure(errno, "mapping memory");
  return std::unique_ptr<TestedAllocator>(std::make_unique<BoostAllocator>(memory, bytes));
}

}  // namespace

AllocatorKind boost_peer() {
  return {"boost-rbtree", fmt::format("Boost {}.{}", BOOST_VERSION / 100'000, BOOST_VERSION / 100 % 1000),
          "Boost.Interprocess, rbtree_best_fit with its usual mutex, in anonymous memory", open_boost};
}

}  // namespace memlith::tool
