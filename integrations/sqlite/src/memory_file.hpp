// Files that live in memory: rollback journals and write-ahead logs. Part of the SQLite plugin.
//
// They have names, because SQLite finds a journal by its name (another connection of the process, after a commit that
// failed half-way). A crash loses them, which is correct: the database is then in the state of its last commit.
// Transactions over several databases are the exception: disk_journal.hpp.
//
// The first MiB of a file lies in small chunks of the heap, because most journals are small and short-lived. What lies
// beyond is mapped in larger chunks: the system gets that memory back as soon as the file is cut, whatever else is in
// the heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

namespace memlith::sqlite {

// Threads: any number may read and write at once.
class MemoryFile {
 public:
  // Returns how many bytes there were.
  std::uint64_t read(std::uint64_t offset, void* target, std::uint64_t bytes) const;
  void write(std::uint64_t offset, const void* source, std::uint64_t bytes);
  void truncate(std::uint64_t bytes);
  // Truncates to `bytes` if there are more.
  void keep_at_most(std::uint64_t bytes);
  // Reserves memory, so that writing up to there allocates nothing. Throws std::bad_alloc.
  void reserve(std::uint64_t bytes);
  [[nodiscard]] std::uint64_t size() const;
  // The address of the bytes, or null if they are not contiguous. Valid until they are truncated.
  [[nodiscard]] const std::byte* find(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  struct Chunk {
    std::byte* memory = nullptr;
    std::uint64_t bytes = 0;
    explicit Chunk(std::uint64_t count);
    Chunk(Chunk&& other) noexcept;
    Chunk& operator=(Chunk&&) = delete;
    ~Chunk();
  };
  // The place of an offset: the chunk, the position in the chunk, and how many bytes of the chunk follow.
  struct ChunkOffset {
    std::size_t chunk;
    std::uint64_t inside;
    std::uint64_t left;
  };
  static ChunkOffset chunk_offset(std::uint64_t offset);
  static std::uint64_t chunk_bytes(std::size_t chunk);
  static std::size_t chunks_for(std::uint64_t bytes);
  void make_room(std::uint64_t bytes);
  void drop_behind(std::uint64_t bytes);
  void zero(std::uint64_t begin, std::uint64_t end);

  mutable std::shared_mutex mutex_;
  std::vector<Chunk> chunks_;
  std::uint64_t size_ = 0;
};

// The names of one VFS. Threads: any.
class MemoryFolder {
 public:
  // Null if it is not there and `create` is false.
  std::shared_ptr<MemoryFile> open(std::string_view name, bool create);
  void put(const std::string& name, std::shared_ptr<MemoryFile> file);
  bool remove(std::string_view name);  // whether it was there

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<MemoryFile>, std::less<>> files_;
};

}  // namespace memlith::sqlite
