// The parts of SQLite's write-ahead log and index that the plugin knows (walformat.html). Part of the SQLite plugin.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memlith::sqlite {

inline constexpr std::uint64_t kWalHeaderBytes = 32;
inline constexpr std::uint64_t kFrameHeaderBytes = 24;

// The index has regions of 32 KiB with places for 4096 frames, the first for 34 less.
inline constexpr int kIndexRegionBytes = 32768;
inline constexpr std::uint64_t kIndexFrames = 4096;
inline constexpr std::uint64_t kIndexFramesLess = 34;
// It begins with a header, which has this version, and which says at this place how many frames are published.
inline constexpr std::size_t kIndexPublishedAt = 16;
// Behind the header's two copies: how many frames a checkpoint has stored in the database.
inline constexpr std::size_t kIndexStoredAt = 96;

// Its locks; from the last one on they are readers' locks.
inline constexpr int kWriteLock = 0;
inline constexpr int kCheckpointLock = 1;
inline constexpr int kFirstReadLock = 3;

}  // namespace memlith::sqlite
