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

Status Region::show() {
  auto shown = std::make_unique<ShownRegion>(*this);
  size_bytes_ = 0;
  ShownRegion& now = *shown;
  shown_ = std::move(shown);
  return now.begin();
}

Status ShownRegion::begin() { return region_.store_.view()->show(*this); }

ShownRegion::~ShownRegion() {
  drop_copy();
  region_.store_.view()->hide(*this);
}

void ShownRegion::drop_copy() {
  if (copy_ != nullptr) ::munmap(copy_, copy_bytes_);
  copy_ = nullptr;
  copy_bytes_ = copied_bytes_ = 0;
  // A change that was begun and not ended.
  if (mapped_bytes_ > 0) (void)::mprotect(region_.base_, mapped_bytes_, PROT_READ);
}

Result<std::span<std::byte>> ShownRegion::begin_copy(std::uint64_t bytes) {
  copied_bytes_ = std::min(bytes, region_.reserve_bytes_);
  // An empty object has a page, too, so that there is a copy.
  copy_bytes_ = std::max(round_up(copied_bytes_, host_page_bytes()), host_page_bytes());
  void* const got = ::mmap(nullptr, copy_bytes_, PROT_READ | PROT_WRITE, kPrivate, -1, 0);
  if (got == MAP_FAILED) return cannot_map(errno, copy_bytes_, region_.shown_name_);
  copy_ = static_cast<std::byte*>(got);
  return std::span(copy_, copied_bytes_);
}

Result<std::span<std::byte>> ShownRegion::begin_change(std::uint64_t bytes) {
  if (bytes > region_.reserve_bytes_) {
    return fail(Errc::address_taken, Detail::mapping,
                "region \"{}\" has {} bytes, and {} bytes of addresses are set aside for it here; its writer has given "
                "it a larger max_size since: close the region, and open it again",
                region_.shown_name_, bytes, region_.reserve_bytes_);
  }
  next_bytes_ = bytes;
  if (copy_ != nullptr) return change_copy(bytes);
  MEMLITH_TRY(map_to(round_up(bytes, host_page_bytes())));
  if (mapped_bytes_ > 0 && ::mprotect(region_.base_, mapped_bytes_, PROT_READ | PROT_WRITE) != 0) {
    return cannot_map(errno, mapped_bytes_, region_.shown_name_);
  }
  // An object that was longer once has old bytes there.
  const std::uint64_t size = region_.size_bytes_.load();
  if (bytes > size) std::memset(region_.base_ + size, 0, bytes - size);
  return std::span(region_.base_, bytes);
}

Result<std::span<std::byte>> ShownRegion::change_copy(std::uint64_t bytes) {
  const std::uint64_t end = std::max(round_up(bytes, host_page_bytes()), host_page_bytes());
  if (end != copy_bytes_) {
    void* const got = ::mremap(copy_, copy_bytes_, end, MREMAP_MAYMOVE);
    if (got == MAP_FAILED) return cannot_map(errno, end, region_.shown_name_);
    copy_ = static_cast<std::byte*>(got);
    copy_bytes_ = end;
  }
  // The home file may be longer than the object.
  if (copied_bytes_ > bytes) std::memset(copy_ + bytes, 0, end - bytes);
  return std::span(copy_, bytes);
}

// The memory reaches to `end` at least; what is new is zeros, and can be changed.
Status ShownRegion::map_to(std::uint64_t end) {
  const std::uint64_t mapped = mapped_bytes_;
  if (end <= mapped) return kOk;
  void* const got = ::mmap(region_.base_ + mapped, end - mapped, PROT_READ | PROT_WRITE, kPrivate | MAP_FIXED, -1, 0);
  if (got == MAP_FAILED) return cannot_map(errno, end - mapped, region_.shown_name_);
  mapped_bytes_ = end;
  return kOk;
}

Status ShownRegion::end_change() {
  if (copy_ != nullptr) {
    if (::mprotect(copy_, copy_bytes_, PROT_READ) != 0) return cannot_map(errno, copy_bytes_, region_.shown_name_);
    // The copy takes the place of what was shown, in one step, without being copied.
    void* const got = ::mremap(copy_, copy_bytes_, copy_bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, region_.base_);
    if (got == MAP_FAILED) return cannot_map(errno, copy_bytes_, region_.shown_name_);
    mapped_bytes_ = std::max(mapped_bytes_, copy_bytes_);
    copy_ = nullptr;
    copy_bytes_ = copied_bytes_ = 0;
  } else if (mapped_bytes_ > 0 && ::mprotect(region_.base_, mapped_bytes_, PROT_READ) != 0) {
    return cannot_map(errno, mapped_bytes_, region_.shown_name_);
  }
  region_.size_bytes_ = next_bytes_;
  return kOk;
}

}  // namespace memlith::core
