// make_corpus FOLDER: writes the seeds of fuzz_store_open: small real stores, clean and crashed, of both kinds.
#include <cstdio>
#include <fstream>
#include <string>

#include "image.hpp"
#include "store/store.hpp"

using namespace memlith::core;

namespace {

StoreOptions small_options(bool one_file) {
  StoreOptions options;
  options.kind = one_file ? StoreKind::one_file : StoreKind::folder;
  options.file_name = "data";
  options.create = true;
  options.manual_checkpoint = true;
  options.slot_bytes = 4096;
  options.log_bytes = 2 * 4096;
  options.log.batch_bytes = 4096;
  options.log.stream_chunk_bytes = 4096;
  options.log.window_bytes = 4096;
  return options;
}

Status fill(SimVolume& volume, bool one_file, bool close) {
  MEMLITH_TRY_ASSIGN(auto store, Store::open(volume, small_options(one_file)));
  MEMLITH_TRY_ASSIGN(const ObjectInfo info, store->create(one_file ? "file" : "region", 4096, 0x550000000000, 4096));
  for (std::uint64_t i = 0; i < 3; ++i) {
    const Extent extent{info.id, i * 700, 300};
    MEMLITH_TRY_ASSIGN(FrameWriter writer, store->begin_commit({&extent, 1}, {}));
    const std::vector<std::byte> bytes(extent.bytes, static_cast<std::byte>(i + 1));
    writer.put(bytes.data(), bytes.size());
    MEMLITH_TRY_ASSIGN(const Lsn end, writer.finish());
    MEMLITH_TRY(store->sync(end));
  }
  return close ? store->close() : kOk;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_corpus FOLDER\n");
    return 1;
  }
  for (unsigned options = 0; options < 8; ++options) {
    for (const bool close : {false, true}) {
      const bool one_file = (options & 1) != 0;
      SimVolume volume;
      if (!fill(volume, one_file, close).ok()) {
        std::fprintf(stderr, "make_corpus: %s\n", std::string(last_error_text()).c_str());
        return 1;
      }
      const auto bytes = memlith::fuzz::serialize(volume.image(), static_cast<std::byte>(options), one_file);
      std::ofstream out(std::string(argv[1]) + "/store_" + std::to_string(options) + (close ? "_clean" : "_crashed"),
                        std::ios::binary);
      out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
  }
  return 0;
}
