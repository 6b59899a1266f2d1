// make_corpus FOLDER: writes the seeds of the fuzzers, each into the folder of its fuzzer's name: real stores and logs,
// clean and crashed, as they are and with the options that put checksums right.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "image.hpp"
#include "small_log.hpp"
#include "small_store.hpp"

using namespace memlith::core;
using namespace memlith::fuzz;

namespace {

std::filesystem::path g_folder;

void write(const std::string& fuzzer, const std::string& name, std::span<const std::byte> bytes) {
  std::filesystem::create_directories(g_folder / fuzzer);
  std::ofstream out(g_folder / fuzzer / name, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) {
    std::fprintf(stderr, "make_corpus: cannot write %s\n", (g_folder / fuzzer / name).c_str());
    std::exit(1);
  }
}

// The options' byte, then these bytes.
void write_with_options(const std::string& fuzzer, const std::string& name, unsigned options_max,
                        std::span<const std::byte> rest) {
  for (unsigned options = 0; options <= options_max; ++options) {
    std::vector<std::byte> bytes{static_cast<std::byte>(options)};
    bytes.insert(bytes.end(), rest.begin(), rest.end());
    write(fuzzer, name + "_" + std::to_string(options), bytes);
  }
}

// Patches of a heap, in the format of heap_open.cpp: a few bytes of the header, the table, the words and the bits of a
// segment's header, and of two pages with blocks.
void write_heap_patches() {
  constexpr unsigned kPlaces[][2] = {{0, 48}, {1, 0}, {1, 8}, {2, 64}, {2, 80}, {3, 160}, {3, 2048}, {5, 0}, {9, 16}};
  std::vector<std::byte> all;
  for (const auto& [page, offset] : kPlaces) {
    std::vector<std::byte> patch;
    for (const unsigned each : {page & 255, page >> 8, offset & 255, offset >> 8, 4u, 1u, 0u, 0x70u, offset & 7}) {
      patch.push_back(static_cast<std::byte>(each));
    }
    write_with_options("heap_open", std::to_string(page) + "_" + std::to_string(offset), 1, patch);
    all.insert(all.end(), patch.begin(), patch.end());
  }
  write_with_options("heap_open", "all", 1, all);
  constexpr std::byte kFreePagesWithALength[] = {std::byte{2}, std::byte{0}, std::byte{0}, std::byte{1},
                                                 std::byte{2}, std::byte{0}, std::byte{10}};
  write_with_options("heap_open", "free_pages_with_a_length", 1, kFreePagesWithALength);
}

// Patches of a kv store, in the format of kv_open.cpp: the store's header, the catalogue's page, and the header, the
// places and the first cells of other pages.
void write_kv_patches() {
  constexpr unsigned kPlaces[][2] = {{0, 16}, {0, 24}, {1, 4},  {1, 16}, {2, 4},  {2, 8},
                                     {3, 6},  {3, 16}, {5, 12}, {9, 0},  {20, 8}, {30, 2}};
  std::vector<std::byte> all;
  for (const auto& [page, offset] : kPlaces) {
    std::vector<std::byte> patch;
    for (const unsigned each : {page, 0u, offset & 255, offset >> 8, 4u, 1u, 0u, 2u, offset & 7}) {
      patch.push_back(static_cast<std::byte>(each));
    }
    write("kv_open", std::to_string(page) + "_" + std::to_string(offset), patch);
    all.insert(all.end(), patch.begin(), patch.end());
  }
  write("kv_open", "all", all);
  // A byte that changes nothing: free room of a page.
  constexpr std::byte kNothing[] = {std::byte{50}, std::byte{0}, std::byte{255}, std::byte{15}, std::byte{0},
                                    std::byte{1},  std::byte{2}, std::byte{3},   std::byte{4}};
  write("kv_open", "nothing", kNothing);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_corpus FOLDER\n");
    return 1;
  }
  g_folder = argv[1];
  write_heap_patches();
  write_kv_patches();
  for (const bool clean : {false, true}) {
    const std::string word = clean ? "clean" : "crashed";
    for (unsigned options = 0; options < 8; ++options) {
      const bool one_file = (options & 1) != 0;
      const SimImage image = small_store_image(1, clean, one_file);
      write("store_open", word + "_" + std::to_string(options),
            serialize(image, static_cast<std::byte>(options), one_file));
    }
    for (const std::size_t objects : {0u, 1u, 3u}) {
      // The identity is random, so without mended checksums a directory belongs to no other store.
      const SimImage image = small_store_image(objects, clean);
      const auto& directory = *image.files.at("objects/0");
      write_with_options("directory", word + "_" + std::to_string(objects), 3,
                         std::span(directory).first(256 * (objects + 2)));
    }
    const std::vector<std::byte> log = *small_log_image(clean).files.at("log");
    std::vector<std::byte> superblocks(log.begin(), log.begin() + 512);
    superblocks.insert(superblocks.end(), log.begin() + 4096, log.begin() + 4096 + 512);
    write_with_options("superblock", word, 3, superblocks);
    write_with_options("log_frames", word, 3, std::span(log).subspan(kSlotsOffset));
  }
  return 0;
}
