#include "workload_stores.hpp"

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "mutants/mutants.hpp"
#include "run.hpp"
#include "sim/raw_host.hpp"
#include "workload.hpp"

namespace memlith::lab {

using namespace core;

StoreOptions small_store() {
  StoreOptions options;
  options.create = true;
  options.manual_checkpoint = true;
  options.slot_bytes = 4096;
  options.log_bytes = 4 * 4096;
  options.log_max_bytes = 16 * 4096;
  options.log.batch_bytes = 4096;
  options.log.stream_chunk_bytes = 4096;
  options.log.window_bytes = 4096;
  options.log.pipeline_bytes_min = 0;  // batches overlap, however small
  options.flusher_looks = 1;
  options.idle_pages = 2;
  options.log.turns_awake = 1;
  return options;
}

namespace {
// An ordinary file that was there before, of a length that is no multiple of anything.
std::vector<std::byte> file_bytes() {
  std::vector<std::byte> bytes(5003);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return bytes;
}

StoreOptions in_one_file(StoreOptions options) {
  options.kind = StoreKind::one_file;
  options.file_name = "data";
  return options;
}
}  // namespace

namespace stores {

StoreOptions full_log() {
  StoreOptions options = small_store();
  options.log_max_bytes = options.log_bytes;  // it cannot grow
  return options;
}

StoreOptions background() {
  StoreOptions options = small_store();
  options.manual_checkpoint = false;
  options.log.pipeline_bytes_min = LogOptions{}.pipeline_bytes_min;
  return options;
}

StoreOptions busy() {
  StoreOptions options = background();
  options.log_busy_bytes = options.log_max_bytes;
  return options;
}

StoreOptions two_slots() {
  StoreOptions options = small_store();
  options.slot_bytes = 16384;
  options.log_bytes = 2 * 16384;
  options.log_max_bytes = 3 * 16384;
  return options;
}

StoreOptions wide_slots() {
  StoreOptions options = small_store();
  options.slot_bytes = 16384;
  options.log_bytes = 4 * 16384;
  options.log_max_bytes = 8 * 16384;
  options.log.batch_bytes = 16384;
  options.log.stream_chunk_bytes = 8192;
  return options;
}

StoreOptions roomy() {
  StoreOptions options = small_store();
  options.log_bytes = options.log_max_bytes = 64 * 4096;
  return options;
}

// Large content goes by pieces: recovery writes home past the page cache and while frames are still to come, a
// checkpoint flushes homes in between.
StoreOptions in_pieces() {
  StoreOptions options = small_store();
  options.direct_replay_bytes_min = 0;
  options.home_flush_bytes = 2 * kPageBytes;
  options.replay_bytes_max = 6000;
  options.log.recovery_window_bytes = 4096;
  return options;
}

StoreOptions file_in_pieces() { return in_one_file(in_pieces()); }

StoreOptions file() { return in_one_file(small_store()); }

StoreOptions torn_blocks() {
  StoreOptions options = wide_slots();
  options.physical_block_bytes = kSimPhysicalBlockBytes;
  return options;
}

StoreOptions torn_blocks_in_pieces() {
  StoreOptions options = torn_blocks();
  options.home_flush_bytes = 2 * kPageBytes;
  options.replay_bytes_max = 6000;
  return options;
}

StoreOptions file_torn_blocks() { return in_one_file(torn_blocks()); }

StoreOptions file_wide_slots() { return in_one_file(wide_slots()); }

StoreOptions in_use_file() {
  StoreOptions options = file();
  options.in_use = InUse::caller;
  return options;
}

StoreOptions file_with_holes() {
  StoreOptions options = file_wide_slots();
  options.keeps_holes = true;
  return options;
}

StoreOptions guarded_file() {
  StoreOptions options = file_wide_slots();
  options.in_use = InUse::guard;
  return options;
}

// A file with the header, and without a moment.
std::vector<std::byte> marked_bytes() {
  std::vector<std::byte> bytes = file_bytes();
  const InUseHeader header{kCallerInUse, kNoMoment};
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}
// Beside the log that it was closed with: a file that has the in-use header is nothing without its log.
SimImage marked_image() {
  static const SimImage image = [] {
    const std::uint64_t before = std::exchange(given_identity, 0x6d61726b6564);
    const Mutant mutant = std::exchange(active_mutant, Mutant::none);
    SimVolume volume(file_image());
    make_repeatable(volume);
    const std::unique_ptr<Store> store = std::move(*Store::open(volume, in_use_file()));
    const std::vector<std::byte> bytes = marked_bytes();
    const Extent header{kFile, 0, kInUseHeaderBytes};
    const std::byte* const source = bytes.data();
    Status made = store->commit({{&header, 1}, {&source, 1}, {}});
    if (made.ok()) made = store->close();
    MEMLITH_ASSERT(made.ok());
    given_identity = before;
    active_mutant = mutant;
    return volume.image();
  }();
  return image;
}
Content marked_content() {
  Content content;
  content.objects["file"] = marked_bytes();
  return content;
}

std::vector<std::byte> structure_bytes() {
  std::vector<std::byte> bytes = file_bytes();
  std::memset(bytes.data(), 0, kInUseHeaderBytes);
  std::memcpy(bytes.data() + kInUseHeaderBytes, &kStructureMagic, sizeof kStructureMagic);
  return bytes;
}
SimImage structure_image() {
  SimImage image;
  image.files["data"] = std::make_shared<const std::vector<std::byte>>(structure_bytes());
  return image;
}
Content structure_content() {
  Content content;
  content.objects["file"] = structure_bytes();
  return content;
}

SimImage file_image() {
  SimImage image;
  image.files["data"] = std::make_shared<const std::vector<std::byte>>(file_bytes());
  return image;
}
Content file_content() {
  Content content;
  content.objects["file"] = file_bytes();
  return content;
}

constexpr const char* kFilesBeside[] = {"data-b", "data-c"};

SimImage three_files() {
  SimImage image = file_image();
  for (const char* const name : kFilesBeside) {
    std::vector<std::byte> bytes = file_bytes();
    for (std::byte& each : bytes) each ^= static_cast<std::byte>(name[5]);
    image.files[name] = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  }
  return image;
}
Content three_contents() {
  const SimImage image = three_files();
  Content content = file_content();
  for (const char* const name : kFilesBeside) content.objects[name] = *image.files.at(name);
  return content;
}
std::vector<std::string> files_beside(SimVolume& volume) {
  std::vector<std::string> names;
  for (const char* const name : kFilesBeside) {
    if (const auto there = volume.exists(name); there.ok() && *there) names.emplace_back(name);
  }
  return names;
}

SimImage raw_device() {
  static const SimImage image = [] {
    const std::uint64_t before = std::exchange(given_identity, 0x7261772d646576);
    SimImage formatted = formatted_sim_device(448 * kKiB, {4 * kKiB, kRawMapBytesMin});
    given_identity = before;
    return formatted;
  }();
  return image;
}

}  // namespace stores

}  // namespace memlith::lab
