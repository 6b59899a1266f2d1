#include "memory_file.hpp"

#include <algorithm>
#include <cstring>

namespace memlith::sqlite {

std::uint64_t MemoryFile::read(std::uint64_t offset, void* target, std::uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  if (offset >= size_) return 0;
  const std::uint64_t total = std::min(bytes, size_ - offset);
  auto* to = static_cast<std::byte*>(target);
  for (std::uint64_t done = 0; done < total;) {
    const std::uint64_t inside = (offset + done) % kChunkBytes;
    const std::uint64_t step = std::min(total - done, kChunkBytes - inside);
    std::memcpy(to + done, chunks_[(offset + done) / kChunkBytes].get() + inside, step);
    done += step;
  }
  return total;
}

void MemoryFile::zero(std::uint64_t begin, std::uint64_t end) {
  while (begin < end) {
    const std::uint64_t inside = begin % kChunkBytes;
    const std::uint64_t step = std::min(end - begin, kChunkBytes - inside);
    std::memset(chunks_[begin / kChunkBytes].get() + inside, 0, step);
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
    const std::uint64_t inside = (offset + done) % kChunkBytes;
    const std::uint64_t step = std::min(bytes - done, kChunkBytes - inside);
    std::memcpy(chunks_[(offset + done) / kChunkBytes].get() + inside, from + done, step);
    done += step;
  }
  size_ = std::max(size_, end);
}

void MemoryFile::reserve(std::uint64_t bytes) {
  const std::unique_lock lock(mutex_);
  make_room(bytes);
}

void MemoryFile::make_room(std::uint64_t bytes) {
  while (chunks_.size() * kChunkBytes < bytes) {
    chunks_.push_back(std::make_unique_for_overwrite<std::byte[]>(kChunkBytes));
  }
}

void MemoryFile::truncate(std::uint64_t bytes) {
  const std::unique_lock lock(mutex_);
  if (bytes > size_) {
    make_room(bytes);
    zero(size_, bytes);
  } else {
    chunks_.resize((bytes + kChunkBytes - 1) / kChunkBytes);
  }
  size_ = bytes;
}

std::uint64_t MemoryFile::size() const {
  const std::shared_lock lock(mutex_);
  return size_;
}

const std::byte* MemoryFile::find(std::uint64_t offset, std::uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  if (bytes == 0 || offset + bytes > size_ || offset / kChunkBytes != (offset + bytes - 1) / kChunkBytes)
    return nullptr;
  return chunks_[offset / kChunkBytes].get() + offset % kChunkBytes;
}

std::shared_ptr<MemoryFile> MemoryFolder::open(const std::string& name, bool create) {
  const std::lock_guard lock(mutex_);
  if (const auto found = files_.find(name); found != files_.end()) return found->second;
  return create ? files_[name] = std::make_shared<MemoryFile>() : nullptr;
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
