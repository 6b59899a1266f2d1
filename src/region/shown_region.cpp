#include "region/shown_region.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/host.hpp"

namespace memlith::core {

namespace {

constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

Status cannot_map(int error, std::uint64_t bytes, const std::string& name) {
  return fail_errno(error, Detail::mapping, "cannot map {} bytes for a view of region \"{}\"", bytes, name);
}

}  // namespace

Status ShownRegion::begin() { return home_.store().view()->show(*this); }

ShownRegion::~ShownRegion() {
  drop_copy();
  home_.store().view()->hide(*this);
}

void ShownRegion::drop_copy() {
  if (copy_ != nullptr) ::munmap(copy_, copy_bytes_);
  copy_ = nullptr;
  copy_bytes_ = copied_bytes_ = 0;
  // A change that was begun and not ended.
  if (mapped_bytes_ > 0) (void)::mprotect(mapping_.base(), mapped_bytes_, PROT_READ);
}

Result<std::span<std::byte>> ShownRegion::begin_copy(std::uint64_t bytes) {
  MEMLITH_ASSERT(copy_ == nullptr);
  copied_bytes_ = std::min(bytes, mapping_.reserve());
  // An empty object has a page, too, so that there is a copy.
  copy_bytes_ = std::max(round_up(copied_bytes_, host_page_bytes()), host_page_bytes());
  void* const got = ::mmap(nullptr, copy_bytes_, PROT_READ | PROT_WRITE, kPrivate, -1, 0);
  if (got == MAP_FAILED) return cannot_map(errno, copy_bytes_, mapping_.shown_name());
  copy_ = static_cast<std::byte*>(got);
  return std::span(copy_, copied_bytes_);
}

Result<std::span<std::byte>> ShownRegion::begin_change(std::uint64_t bytes) {
  if (bytes > mapping_.reserve()) {
    return fail(Errc::address_taken, Detail::mapping,
                "region \"{}\" has {} bytes, and {} bytes of addresses are set aside for it here; its writer has given "
                "it a larger max_size since: close the region, and open it again",
                mapping_.shown_name(), bytes, mapping_.reserve());
  }
  next_bytes_ = bytes;
  if (copy_ != nullptr) return change_copy(bytes);
  MEMLITH_TRY(map_to(round_up(bytes, host_page_bytes())));
  if (mapped_bytes_ > 0 && ::mprotect(mapping_.base(), mapped_bytes_, PROT_READ | PROT_WRITE) != 0) {
    return cannot_map(errno, mapped_bytes_, mapping_.shown_name());
  }
  // An object that was longer once has old bytes there.
  const std::uint64_t size = mapping_.size();
  if (bytes > size) std::memset(mapping_.base() + size, 0, bytes - size);
  return std::span(mapping_.base(), bytes);
}

Result<std::span<std::byte>> ShownRegion::change_copy(std::uint64_t bytes) {
  MEMLITH_ASSERT(copy_ != nullptr && bytes <= mapping_.reserve());
  const std::uint64_t end = std::max(round_up(bytes, host_page_bytes()), host_page_bytes());
  if (end != copy_bytes_) {
    void* const got = ::mremap(copy_, copy_bytes_, end, MREMAP_MAYMOVE);
    if (got == MAP_FAILED) return cannot_map(errno, end, mapping_.shown_name());
    copy_ = static_cast<std::byte*>(got);
    copy_bytes_ = end;
  }
  MEMLITH_ASSERT(bytes <= copy_bytes_ && copy_bytes_ == end);
  // The home file may be longer than the object.
  if (copied_bytes_ > bytes) std::memset(copy_ + bytes, 0, end - bytes);
  return std::span(copy_, bytes);
}

// The memory reaches to `end` at least; what is new is zeros, and can be changed.
Status ShownRegion::map_to(std::uint64_t end) {
  const std::uint64_t mapped = mapped_bytes_;
  MEMLITH_ASSERT(end % host_page_bytes() == 0 && mapped % host_page_bytes() == 0);
  if (end <= mapped) return kOk;
  void* const got = ::mmap(mapping_.base() + mapped, end - mapped, PROT_READ | PROT_WRITE, kPrivate | MAP_FIXED, -1, 0);
  if (got == MAP_FAILED) return cannot_map(errno, end - mapped, mapping_.shown_name());
  mapped_bytes_ = end;
  return kOk;
}

Status ShownRegion::end_change() {
  if (copy_ != nullptr) {
    if (::mprotect(copy_, copy_bytes_, PROT_READ) != 0) return cannot_map(errno, copy_bytes_, mapping_.shown_name());
    // The copy takes the place of what was shown, in one step, without being copied.
    void* const got = ::mremap(copy_, copy_bytes_, copy_bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, mapping_.base());
    if (got == MAP_FAILED) return cannot_map(errno, copy_bytes_, mapping_.shown_name());
    mapped_bytes_ = std::max(mapped_bytes_, copy_bytes_);
    copy_ = nullptr;
    copy_bytes_ = copied_bytes_ = 0;
  } else if (mapped_bytes_ > 0 && ::mprotect(mapping_.base(), mapped_bytes_, PROT_READ) != 0) {
    return cannot_map(errno, mapped_bytes_, mapping_.shown_name());
  }
  MEMLITH_ASSERT(next_bytes_ <= mapped_bytes_);
  mapping_.set_size(next_bytes_);
  return kOk;
}

}  // namespace memlith::core
