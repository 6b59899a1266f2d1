#include "real_log.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "files.hpp"

namespace memlith_postgres {

namespace {

class RealHome final : public HomeFile {
 public:
  RealHome(Descriptor file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  Result<std::uint64_t> blocks() override {
    struct stat status{};
    if (::fstat(file_.get(), &status) != 0) return errno_error("cannot examine " + path_);
    return static_cast<std::uint64_t>(status.st_size) / kPageBytes;
  }
  Result<void> read(std::uint32_t block, std::byte* page) override {
    for (std::size_t done = 0; done < kPageBytes;) {
      const ssize_t bytes = ::pread(file_.get(), page + done, kPageBytes - done, place_of(block, done));
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes < 0) return errno_error("cannot read " + path_);
      if (bytes == 0) return Error(MEMLITH_IO, path_ + " is shorter than it was");
      done += static_cast<std::size_t>(bytes);
    }
    return {};
  }
  Result<void> write(std::uint32_t block, const std::byte* page) override {
    for (std::size_t done = 0; done < kPageBytes;) {
      const ssize_t bytes = ::pwrite(file_.get(), page + done, kPageBytes - done, place_of(block, done));
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes <= 0) return errno_error("cannot write " + path_);
      done += static_cast<std::size_t>(bytes);
    }
    return {};
  }
  Result<void> cut(std::uint32_t blocks) override {
    if (::ftruncate(file_.get(), place_of(blocks, 0)) != 0) return errno_error("cannot cut " + path_);
    return {};
  }
  Result<void> flush() override { return flush_file(file_, path_); }

 private:
  static off_t place_of(std::uint32_t block, std::size_t offset) {
    return static_cast<off_t>(block) * static_cast<off_t>(kPageBytes) + static_cast<off_t>(offset);
  }
  const Descriptor file_;
  const std::string path_;
};

}  // namespace

Result<std::unique_ptr<HomeFile>> FileHomes::open(const std::string& path) {
  const std::string whole = data_ + "/" + path;
  Result<Descriptor> file = open_file(whole, O_RDWR);
  if (!file && file.error().category() == MEMLITH_NOT_FOUND) return std::unique_ptr<HomeFile>();
  if (!file) return file.error();
  return std::unique_ptr<HomeFile>(std::make_unique<RealHome>(std::move(*file), whole));
}

Result<void> FileHomes::flush_folder_of(const std::string& path) {
  Result<void> flushed = flush_folder(folder_of(data_ + "/" + path));
  if (!flushed && flushed.error().category() == MEMLITH_NOT_FOUND) return {};
  return flushed;
}

}  // namespace memlith_postgres
