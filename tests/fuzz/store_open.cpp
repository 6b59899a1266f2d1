// Opening a store from arbitrary bytes gives data or an error, never a crash, a hang or a leak (invariant 6).
//
// Checksums would stop nearly every mutation at the door, so one option bit has them put right first: what lies behind
// the checksums is fuzzed too.
#include <cstdint>

#include "image.hpp"
#include "mend.hpp"
#include "store/store.hpp"

using namespace memlith::core;
using namespace memlith::fuzz;

namespace {

// Puts the checksums of the superblocks, slots, frames and directory right, without touching what they cover.
void mend_log(std::vector<std::byte>& log, std::uint64_t& log_id) {
  Superblock superblock{};
  if (log.size() < sizeof superblock) return;
  std::memcpy(&superblock, log.data(), sizeof superblock);
  log_id = superblock.log_id;
  mend<Superblock>(log, 0, kSuperblockSeed);
  mend<Superblock>(log, kSuperblockStrideBytes, kSuperblockSeed);
  for (std::uint64_t at = kSlotsOffset; at + 512 <= log.size(); at += 512) {
    std::uint32_t magic = 0;
    std::memcpy(&magic, log.data() + at, sizeof magic);
    if (magic == kSlotMagic) mend<SlotHeader>(log, at, log_id);
    const LogGeometry geometry{is_log_block(superblock.block_bytes) ? superblock.block_bytes : 512u,
                               superblock.slot_bytes};
    if (magic == kFrameMagic) (void)mend_frame(log, at, geometry, log_id);
  }
}

SimImage mended(const SimImage& image, bool one_file) {
  SimImage result = image;
  std::uint64_t log_id = 0;
  const auto log = image.files.find(one_file ? "data.memlith" : "log");
  if (log == image.files.end()) return result;
  auto bytes = *log->second;
  mend_log(bytes, log_id);
  result.files[log->first] = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  if (const auto directory = image.files.find("objects/0"); directory != image.files.end()) {
    auto entries = *directory->second;
    mend_directory(entries, log_id);
    result.files["objects/0"] = std::make_shared<const std::vector<std::byte>>(std::move(entries));
  }
  return result;
}

void open_once(const SimImage& image, bool one_file, bool read_only) {
  SimVolume volume(image);
  StoreOptions options;
  options.kind = one_file ? StoreKind::one_file : StoreKind::folder;
  options.file_name = "data";
  options.read_only = read_only;
  options.manual_checkpoint = true;
  options.log.batch_bytes = 4096;
  options.log.stream_chunk_bytes = 4096;
  options.log.window_bytes = 4096;
  auto store = Store::open(volume, options);
  if (!store.ok()) return;
  for (const ObjectInfo& object : (*store)->objects()) {
    if (object.size_bytes < memlith::fuzz::kImageBytesMax) (void)(*store)->read_home(object.id);
  }
  if (!read_only) (void)(*store)->close();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > memlith::fuzz::kImageBytesMax) return 0;
  const unsigned options = data[0];
  const bool one_file = (options & 1) != 0;
  SimImage image = memlith::fuzz::parse({reinterpret_cast<const std::byte*>(data + 1), size - 1}, one_file);
  if ((options & 2) != 0) image = mended(image, one_file);
  open_once(image, one_file, (options & 4) != 0);
  return 0;
}
