// memlith-files-msync: random pages of a mapped file, made durable.
//
//   memlith-files-msync FOLDER HOW PAGES SECONDS THINK-MS
//
// HOW: `msync` (one page after the other may reach the file), `reflink` (msync, a clone by FICLONE, flushed, renamed
// over the file that counts), `memlith` (memlith_msync), `memlith-guard`; or `pread`, which only reads, to see what an
// interposed library costs. Each operation stores to every byte of PAGES pages; THINK-MS pass before the next. Prints
// one JSON object.
#include <fcntl.h>
#include <linux/fs.h>
#include <memlith/files.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "samples.hpp"

namespace {

using namespace memlith::tool;

constexpr std::size_t kPageBytes = 4096;
constexpr std::uint64_t kPages = 16'384;  // 64 MiB
constexpr std::uint64_t kReads = 2'000'000;

int fail(const char* what) {
  char text[1024] = "";
  memlith_last_error(text, sizeof text);
  std::fprintf(stderr, "%s: %s %s\n", what, std::strerror(errno), text);
  return 1;
}

struct Mapped {
  std::string folder;
  std::string how;
  int fd = -1;
  char* memory = nullptr;

  [[nodiscard]] bool by_memlith() const { return how.starts_with("memlith"); }
  [[nodiscard]] bool map() {
    constexpr int kProtection = PROT_READ | PROT_WRITE;
    const int guard = how == "memlith-guard" ? MEMLITH_IMAGE_GUARD : 0;
    void* const got = by_memlith() ? memlith_mmap(nullptr, kPages * kPageBytes, kProtection, MAP_SHARED | guard, fd, 0)
                                   : ::mmap(nullptr, kPages * kPageBytes, kProtection, MAP_SHARED, fd, 0);
    memory = static_cast<char*>(got);
    return got != MAP_FAILED;
  }
  [[nodiscard]] bool sync() const {
    if (by_memlith()) return memlith_msync(memory, kPages * kPageBytes, MS_SYNC) == 0;
    if (how == "msync") return ::msync(memory, kPages * kPageBytes, MS_SYNC) == 0;
    const std::string fresh = folder + "/snapshot.new";
    const int clone = ::open(fresh.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    const bool kept = clone >= 0 && ::msync(memory, kPages * kPageBytes, MS_SYNC) == 0 &&
                      ::ioctl(clone, FICLONE, fd) == 0 && ::fsync(clone) == 0 && ::close(clone) == 0;
    return kept && ::rename(fresh.c_str(), (folder + "/snapshot").c_str()) == 0 && sync_folder();
  }
  [[nodiscard]] bool sync_folder() const {
    const int found = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool synced = found >= 0 && ::fsync(found) == 0;
    ::close(found);
    return synced;
  }
};

int read_only(int fd) {
  char bytes[512];
  Random random(1);
  const auto begin = now_ns();
  for (std::uint64_t i = 0; i < kReads; ++i) {
    if (::pread(fd, bytes, sizeof bytes, static_cast<off_t>(i % kPages * kPageBytes)) != sizeof bytes) return 1;
  }
  const std::uint64_t all_ns = now_ns() - begin;
  print_samples({all_ns / kReads}, static_cast<double>(all_ns) / static_cast<double>(kReads) / 1e9);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count != 6) return std::fprintf(stderr, "usage: %s FOLDER HOW PAGES SECONDS THINK-MS\n", words[0]), 2;
  Mapped file{words[1], words[2]};
  const auto pages = static_cast<std::uint64_t>(std::atoi(words[3]));
  const double seconds = std::atof(words[4]);
  const int think_ms = std::atoi(words[5]);
  file.fd = ::open((file.folder + "/data").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  const std::string block(1 << 20, 'x');
  for (std::uint64_t i = 0; i < kPages * kPageBytes / block.size(); ++i) {
    if (::write(file.fd, block.data(), block.size()) != static_cast<ssize_t>(block.size())) return fail("write");
  }
  if (::fsync(file.fd) != 0) return fail("fsync");
  if (file.how == "pread") return read_only(file.fd);
  if (!file.map()) return fail("mmap");
  Random random(pages);
  std::vector<std::uint64_t> samples_ns;
  const auto begin = now_ns();
  while (seconds_of(now_ns() - begin) < seconds) {
    const auto from = now_ns();
    for (std::uint64_t i = 0; i < pages; ++i) {
      std::memset(file.memory + random.below(kPages) * kPageBytes, static_cast<int>(random.below(256)), kPageBytes);
    }
    if (!file.sync()) return fail("sync");
    samples_ns.push_back(now_ns() - from);
    if (think_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(think_ms));
  }
  print_samples(samples_ns, seconds_of(now_ns() - begin));
  return file.by_memlith() && memlith_munmap(file.memory, kPages * kPageBytes) != 0 ? fail("munmap") : 0;
}
