// Opening a store whose directory is arbitrary bytes gives the objects that it names, each readable and once, and the
// same ones when it is closed and opened again; or it gives an error and changes nothing (docs/guarantees.md, "After a
// crash").
//
// Input: a byte of options (1: the checksums of header and entries are put right; 2: read-only), then the directory.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "image.hpp"
#include "mend.hpp"
#include "small_store.hpp"

using namespace memlith::core;
using namespace memlith::fuzz;

namespace {

[[noreturn]] void wrong(const char* what) {
  std::fprintf(stderr, "%s\n%s\n", what, std::string(last_error_text()).c_str());
  std::abort();
}

// True if it opened.
bool names_of_objects(SimVolume& volume, bool read_only, std::vector<std::string>& names) {
  StoreOptions options = small_store_options(false);
  options.create = false;
  options.read_only = read_only;
  auto store = Store::open(volume, options);
  if (!store.ok()) return false;
  std::set<std::uint32_t> ids;
  for (const ObjectInfo& object : (*store)->objects()) {
    if (!ids.insert(object.id.value).second) wrong("an object is there twice");
    if (!(*store)->read_home(object.id).ok()) wrong("an object that is there cannot be read");
    names.push_back(object.name);
  }
  if (!read_only && !(*store)->close().ok()) wrong("a store that opened cannot be closed");
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1 || size > 64 * 1024) return 0;
  static const SimImage real = small_store_image(3, true);
  static const std::uint64_t log_id = [] {
    Superblock superblock;
    std::memcpy(&superblock, real.files.at("log")->data(), sizeof superblock);
    return superblock.log_id;
  }();
  std::vector<std::byte> directory = *real.files.at("objects/0");
  const auto* const bytes = reinterpret_cast<const std::byte*>(data + 1);
  directory.resize(std::max(directory.size(), size - 1));
  std::copy(bytes, bytes + (size - 1), directory.begin());
  if ((data[0] & 1) != 0) mend_directory(directory, log_id);
  SimImage image = real;
  image.files["objects/0"] = std::make_shared<const std::vector<std::byte>>(std::move(directory));

  SimVolume volume(image);
  const bool read_only = (data[0] & 2) != 0;
  std::vector<std::string> names;
  if (!names_of_objects(volume, read_only, names)) {
    if (volume.image().hash() != image.hash()) wrong("an opening that failed changed something");
    return 0;
  }
  std::vector<std::string> again;
  if (!names_of_objects(volume, read_only, again) || again != names) wrong("opened again it shows other objects");
  return 0;
}
