// The calls of a server's process on the files of relations, in the place of the system calls. Floor: postgres.
//
// A page that is written goes into shared memory, and is read from there until it is home. A flush of a file waits
// until the log has what was written to it, and flushes the file itself only when something else has to be durable: its
// name, or a cut. PostgreSQL makes sure that no two processes write or read one page at a time.
//
// Nothing here allocates memory or throws. Results are numbers of errno; 0: done.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pages.hpp"

namespace memlith_postgres {

// The file itself, as the process has it open.
class FileAccess {
 public:
  virtual ~FileAccess() = default;
  [[nodiscard]] virtual std::uint32_t blocks() = 0;
  // The page as the kernel's cache has it; false if that would need the disk.
  virtual bool read_cached(std::uint32_t block, std::byte* page) = 0;
  virtual int write(std::uint32_t block, const std::byte* page) = 0;
  virtual int flush() = 0;
  virtual int cut(std::uint32_t blocks) = 0;
  // Gives the file that length, with zeros behind what it has.
  virtual int lengthen(std::uint32_t blocks) = 0;
};

// How a process waits for the keeper. False: nothing is acknowledged any more.
class Waiting {
 public:
  virtual ~Waiting() = default;
  enum class For : std::uint8_t { durable, home, checkpointed };
  // Until the counter has come to that batch; the batch is wanted.
  virtual bool wait(For what, std::uint64_t batch) = 0;
};

class FileCalls {
 public:
  FileCalls(Pages& pages, Waiting& waiting) : pages_(pages), waiting_(waiting) {}

  // Before a file of that name is made: records of an earlier one of that name are no longer in the log on return.
  int before_creation(std::string_view path);
  // Everything that is on its way is home on return; for those who read files by other calls.
  int bring_home();
  // Copies a part of the page if it is on its way.
  bool read(FileRef file, std::uint32_t block, std::size_t offset, std::size_t bytes, std::byte* target);
  int write(FileRef file, FileAccess& access, std::uint32_t block, const std::byte* page);
  int flush(FileRef file, FileAccess& access);
  int cut(FileRef file, FileAccess& access, std::uint32_t blocks);
  int lengthen(FileRef file, FileAccess& access, std::uint32_t blocks);
  // The file's relation is unlogged: from now on its pages go home at once. One that is on its way stays there until
  // it is home.
  void make_unlogged(FileRef file);
  // Before the file is removed.
  int before_removal(FileRef file);

 private:
  int write_home(FileRef ref, FileAccess& access, std::uint32_t block, const std::byte* page);
  int put(SharedFile& file, FileRef ref, FileAccess& access, std::uint32_t block, const std::byte* page, bool extends);
  int record_cut(FileRef ref, std::uint32_t blocks, std::uint64_t& wait_for);
  int record_longer(FileRef file);

  Pages& pages_;
  Waiting& waiting_;
};

}  // namespace memlith_postgres
