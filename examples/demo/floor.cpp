// Measuring the raw device floor. See floor.hpp.
#include "floor.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "disk_file.hpp"

namespace demo {
namespace {

constexpr std::size_t kTimes = 500;
constexpr std::size_t kTimesMin = 20;
constexpr std::uint64_t kMeasuringNsMax = 6'000'000'000;
constexpr std::uint64_t kFileBytes = 64 * kMiB;

// Written once with zeros, like memlith's log: a flush of a file that was only reserved would also pay for metadata.
Result<void> prepare(const std::string& path, const char* zeros, std::uint64_t bytes, std::uint64_t slots) {
  const DiskFile file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) return error_of_errno(path);
  for (std::uint64_t slot = 0; slot < slots; ++slot) {
    if (!write_all(file.get(), zeros, bytes, slot * bytes)) return error_of_errno(path);
  }
  if (::fsync(file.get()) != 0) return error_of_errno(path);
  return {};
}

}  // namespace

Result<Floor> measure_floor(const std::string& folder, std::uint64_t bytes) {
  const std::string path = folder + "/raw-floor.bin";
  const std::uint64_t slots = std::clamp<std::uint64_t>(kFileBytes / bytes, 2, kTimes);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return error_of_errno("memory for the raw floor");
  const std::unique_ptr<char, Unmap> buffer(static_cast<char*>(memory), Unmap{bytes});
  // Large pages spare a large transfer its thousands of segments; memlith's log asks for them too.
  (void)::madvise(memory, bytes, MADV_HUGEPAGE);

  const Removal removal{path};
  std::fill_n(buffer.get(), bytes, '\0');
  if (auto prepared = prepare(path, buffer.get(), bytes, slots); !prepared) return prepared.error();
  for (std::uint64_t i = 0; i < bytes; ++i) buffer.get()[i] = static_cast<char>('a' + i % 23);

  Floor floor;
  floor.bytes = bytes;
  const DiskFile direct(::open(path.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
  // Some file systems open with O_DIRECT and refuse the first write.
  floor.direct = direct.get() >= 0 && write_all(direct.get(), buffer.get(), bytes, 0);
  const DiskFile buffered(floor.direct ? -1 : ::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const int file = floor.direct ? direct.get() : buffered.get();
  if (file < 0) return error_of_errno(path);

  const std::uint64_t begin_ns = now_ns();
  for (std::size_t i = 0; i < kTimes; ++i) {
    const std::uint64_t from_ns = now_ns();
    if (i >= kTimesMin && from_ns - begin_ns > kMeasuringNsMax) break;
    if (!write_all(file, buffer.get(), bytes, i % slots * bytes) || ::fdatasync(file) != 0) return error_of_errno(path);
    floor.nanoseconds.push_back(now_ns() - from_ns);
  }
  return floor;
}

}  // namespace demo
