#include "memory_file.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace memlith::sqlite {

namespace {
constexpr std::uint64_t kSmallBytes = 64 * 1024;
constexpr std::uint64_t kSmallChunks = 16;
constexpr std::uint64_t kLargeBytes = 1024 * 1024;
}  // namespace

// ---- chunks ------------------------------------------------------------------------------------------------------

MemoryFile::Chunk::Chunk(std::uint64_t count) : bytes(count) {
  if (bytes == kSmallBytes) {
    memory = static_cast<std::byte*>(::operator new(bytes));
    return;
  }
  void* const mapping = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  memory = static_cast<std::byte*>(mapping);
}

MemoryFile::Chunk::Chunk(Chunk&& other) noexcept : memory(std::exchange(other.memory, nullptr)), bytes(other.bytes) {}

MemoryFile::Chunk::~Chunk() {
  if (memory == nullptr) return;
  if (bytes == kSmallBytes) {
    ::operator delete(memory);
  } else {
    ::munmap(memory, bytes);
  }
}

std::uint64_t MemoryFile::chunk_bytes(std::size_t chunk) { return chunk < kSmallChunks ? kSmallBytes : kLargeBytes; }

MemoryFile::ChunkOffset MemoryFile::chunk_offset(std::uint64_t offset) {
  constexpr std::uint64_t kSmall = kSmallChunks * kSmallBytes;
  if (offset < kSmall) return {offset / kSmallBytes, offset % kSmallBytes, kSmallBytes - offset % kSmallBytes};
  const std::uint64_t beyond = offset - kSmall;
  return {kSmallChunks + beyond / kLargeBytes, beyond % kLargeBytes, kLargeBytes - beyond % kLargeBytes};
}

std::size_t MemoryFile::chunks_for(std::uint64_t bytes) { return bytes == 0 ? 0 : chunk_offset(bytes - 1).chunk + 1; }

// ---- the file ----------------------------------------------------------------------------------------------------

std::uint64_t MemoryFile::read(std::uint64_t offset, void* target, std::uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  if (offset >= size_) return 0;
  const std::uint64_t total = std::min(bytes, size_ - offset);
  auto* to = static_cast<std::byte*>(target);
  for (std::uint64_t done = 0; done < total;) {
    const ChunkOffset at = chunk_offset(offset + done);
    const std::uint64_t step = std::min(total - done, at.left);
    std::memcpy(to + done, chunks_[at.chunk].memory + at.inside, step);
    done += step;
  }
  return total;
}

void MemoryFile::zero(std::uint64_t begin, std::uint64_t end) {
  while (begin < end) {
    const ChunkOffset at = chunk_offset(begin);
    const std::uint64_t step = std::min(end - begin, at.left);
    std::memset(chunks_[at.chunk].memory + at.inside, 0, step);
    begin += step;
  }
}

void MemoryFile::write(std::uint64_t offset, const void* source, std::uint64_t bytes) {
  const std::unique_lock lock(mutex_);
  const std::uint64_t end = offset + bytes;
  make_room(end);
  if (offset > size_) zero(size_, offset);
  const auto* from = static_cast<const std::byte*>(source);
  for (std::uint64_t done = 0; done < bytes;) {
    const ChunkOffset at = chunk_offset(offset + done);
    const std::uint64_t step = std::min(bytes - done, at.left);
    std::memcpy(chunks_[at.chunk].memory + at.inside, from + done, step);
    done += step;
  }
  size_ = std::max(size_, end);
}

void MemoryFile::reserve(std::uint64_t bytes) {
  const std::unique_lock lock(mutex_);
  make_room(bytes);
}

void MemoryFile::make_room(std::uint64_t bytes) {
  for (const std::size_t wanted = chunks_for(bytes); chunks_.size() < wanted;) {
    chunks_.emplace_back(chunk_bytes(chunks_.size()));
  }
}

void MemoryFile::truncate(std::uint64_t bytes) {
  const std::unique_lock lock(mutex_);
  if (bytes > size_) {
    make_room(bytes);
    zero(size_, bytes);
  } else {
    drop_behind(bytes);
  }
  size_ = bytes;
}

void MemoryFile::keep_at_most(std::uint64_t bytes) {
  const std::unique_lock lock(mutex_);
  drop_behind(bytes);
  size_ = std::min(size_, bytes);
}

void MemoryFile::drop_behind(std::uint64_t bytes) {
  while (chunks_.size() > chunks_for(bytes)) chunks_.pop_back();
}

std::uint64_t MemoryFile::size() const {
  const std::shared_lock lock(mutex_);
  return size_;
}

const std::byte* MemoryFile::find(std::uint64_t offset, std::uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  if (bytes == 0 || offset + bytes > size_) return nullptr;
  const ChunkOffset at = chunk_offset(offset);
  return bytes <= at.left ? chunks_[at.chunk].memory + at.inside : nullptr;
}

std::shared_ptr<MemoryFile> MemoryFolder::open(std::string_view name, bool create) {
  const std::lock_guard lock(mutex_);
  if (const auto found = files_.find(name); found != files_.end()) return found->second;
  return create ? files_[std::string(name)] = std::make_shared<MemoryFile>() : nullptr;
}

void MemoryFolder::put(const std::string& name, std::shared_ptr<MemoryFile> file) {
  const std::lock_guard lock(mutex_);
  files_[name] = std::move(file);
}

bool MemoryFolder::remove(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(name);
  if (found == files_.end()) return false;
  files_.erase(found);
  return true;
}

}  // namespace memlith::sqlite
