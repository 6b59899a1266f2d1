// A whole store as one string of bytes, for the fuzzer: one byte of options, then for each of its four files (log,
// objects/0, objects/1, the file of a one-file store's "data") a 4-byte length and the bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "sim/sim.hpp"

namespace memlith::fuzz {

inline constexpr const char* kFolderNames[] = {"log", "objects/0", "objects/1"};
inline constexpr const char* kFileNames[] = {"data.memlith", "data"};
inline constexpr std::size_t kImageBytesMax = 1 << 20;

inline std::span<const char* const> names_of(bool one_file) {
  return one_file ? std::span<const char* const>(kFileNames) : std::span<const char* const>(kFolderNames);
}

inline core::SimImage parse(std::span<const std::byte> bytes, bool one_file) {
  core::SimImage image;
  for (const char* const name : names_of(one_file)) {
    std::uint32_t length = 0;
    if (bytes.size() < sizeof length) break;
    std::memcpy(&length, bytes.data(), sizeof length);
    bytes = bytes.subspan(sizeof length);
    const std::size_t taken = std::min<std::size_t>(length, bytes.size());
    image.files[name] =
        std::make_shared<const std::vector<std::byte>>(bytes.begin(),
                                                       bytes.begin() + static_cast<std::ptrdiff_t>(taken));
    bytes = bytes.subspan(taken);
  }
  return image;
}

inline std::vector<std::byte> serialize(const core::SimImage& image, std::byte options, bool one_file) {
  std::vector<std::byte> bytes{options};
  for (const char* const name : names_of(one_file)) {
    const auto found = image.files.find(name);
    const auto length = static_cast<std::uint32_t>(found == image.files.end() ? 0 : found->second->size());
    const auto* raw = reinterpret_cast<const std::byte*>(&length);
    bytes.insert(bytes.end(), raw, raw + sizeof length);
    if (length > 0) bytes.insert(bytes.end(), found->second->begin(), found->second->end());
  }
  return bytes;
}

}  // namespace memlith::fuzz
