// Opening a kv store whose pages are arbitrary bytes gives a kv store or an error. A kv store that verify() finds sound
// holds records as a sorted map does: what is put, removed and scanned agrees with one, and the pages are sound after
// that, too (docs/kv.md, "Errors").
//
// Input: patches of a real kv store: two bytes say which page, two where in it, one how many bytes follow.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <span>

#include "kv/kv.hpp"
#include "small_store.hpp"

using namespace memlith::core;
using kv::Durability;
using kv::Kv;
using kv::PageNumber;
using namespace memlith::fuzz;

namespace {

constexpr std::uint64_t kAddress = 0x550000000000;
constexpr std::uint64_t kBytes = 96 * kPageBytes;  // there is no room to grow

using Model = std::map<std::string, std::string>;

[[noreturn]] void wrong(const char* what) {
  std::fprintf(stderr, "%s\n%s\n", what, std::string(last_error_text()).c_str());
  std::abort();
}

template <class T>
T must(Result<T> result) {
  if (!result.ok()) wrong("the kv store to be patched cannot be made");
  return std::move(*result);
}

void must(Status status) {
  if (!status.ok()) wrong("the kv store cannot be made, or rolled back");
}

std::string key_of(std::uint64_t i) { return "key" + std::to_string(i * 7919 % 1000); }

// Two maps of three levels at least, with values in overflow pages, and free pages; persisted.
struct World {
  SimVolume volume;
  std::unique_ptr<Store> store;
  std::unique_ptr<Region> region;

  World() {
    StoreOptions options = small_store_options(false);
    options.slot_bytes = 4 * kMiB;
    options.log_bytes = 8 * kMiB;
    store = must(Store::open(volume, options));
    RegionOptions place;
    place.create = true;
    place.tracker = TrackerKind::touched;
    place.size_bytes = place.reserve_bytes = kBytes;
    place.address = kAddress;
    region = must(Region::open(*store, "kv", place));
    const auto made = must(Kv::open(*region, {.create = true, .window = {}, .manual = true}));
    for (const char* const name : {"a", "b"}) {
      const PageNumber map = must(made->open_map(name, true, false));
      kv::Transaction transaction(*made, false);
      must(transaction.begin());
      for (std::uint64_t i = 0; i < 200; ++i) {
        must(transaction.put(map, key_of(i), std::string(i % 60 == 0 ? 6000 : i % 150, 'v')));
      }
      for (std::uint64_t i = 40; i < 80; ++i) (void)must(transaction.remove(map, key_of(i)));
      (void)must(transaction.commit(Durability::sync, nullptr));
    }
    (void)must(made->verify());
  }
};

void patch(std::byte* base, std::span<const std::uint8_t> input) {
  while (input.size() >= 5) {
    const std::uint64_t page = (input[0] | input[1] << 8u) % (kBytes / kPageBytes);
    const std::uint64_t at = page * kPageBytes + (input[2] | input[3] << 8u) % kPageBytes;
    const std::size_t count = std::min<std::size_t>({input[4], input.size() - 5, kBytes - at});
    std::memcpy(base + at, input.data() + 5, count);
    input = input.subspan(5 + count);
  }
}

// An answer is a success, or one of these.
bool answered(const Status& status) {
  if (status.ok()) return true;
  switch (status.category) {
    case Errc::corrupt:
    case Errc::no_space:
    case Errc::full:
    case Errc::invalid:
    case Errc::exists:
    case Errc::not_found: return false;
    default: wrong("damage is told as something else");
  }
}

Status scan(Kv& store, PageNumber map, Model& found) {
  kv::Transaction transaction(store, true);
  MEMLITH_TRY(transaction.begin());
  std::uint64_t left = 100'000;
  return transaction.for_each(map, {}, std::nullopt, [&](std::string_view key, std::string_view value) {
    found[std::string(key)] = value;
    return --left > 0;
  });
}

// Puts and removals drawn from the input, into the map and into the model. False: there is no room.
bool change(Kv& store, PageNumber map, Model& model, std::span<const std::uint8_t> input, bool sound) {
  for (std::size_t i = 0; i + 1 < std::min<std::size_t>(input.size(), 200); i += 2) {
    kv::Transaction transaction(store, false);
    must(transaction.begin());
    const std::string key = key_of(input[i]);
    const bool removes = input[i + 1] % 3 == 0;
    const std::string value(input[i + 1] % 50 == 1 ? 5000 : input[i + 1] * 3u, 'w');
    Status done = removes ? transaction.remove(map, key).status() : transaction.put(map, key, value);
    if (done.ok()) done = transaction.commit(Durability::weak, nullptr).status();
    if (!answered(done)) {
      if (sound && done.category != Errc::no_space && done.category != Errc::full) wrong("a sound map cannot be used");
      if (done.category == Errc::no_space) return false;
      continue;
    }
    removes ? (void)model.erase(key) : (void)(model[key] = value);
  }
  return true;
}

void use(Kv& store, std::span<const std::uint8_t> input, bool sound) {
  for (std::uint64_t index = 0; index < 8; ++index) {
    Status status = kOk;
    const auto name = store.map_at(index, status);
    if (!name.has_value()) {
      (void)answered(status);
      if (sound && status.category != Errc::not_found) wrong("the maps of a sound kv store cannot be listed");
      break;
    }
    const auto map = store.open_map(*name, false, false);
    if (!answered(map.status())) {
      if (sound && status.category != Errc::invalid && !name->empty() && name->size() < 256 &&
          name->find('\0') == std::string::npos) {
        wrong("a map of a sound kv store cannot be opened");
      }
      continue;
    }
    Model model;
    Model seen;
    const bool before = answered(scan(store, *map, model));
    if (sound && !before) wrong("a sound map cannot be scanned");
    (void)change(store, *map, model, input, sound);
    const bool after = answered(scan(store, *map, seen));
    if (!sound) continue;
    if (!after || seen != model) wrong("a sound map does not hold what was put into it");
    if (!store.verify().ok()) wrong("a sound kv store is not sound after it was used");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 5 || size > 4096) return 0;
  static World world;
  Region& region = *world.region;
  must(region.touch(region.address(), kBytes));
  patch(region.address(), std::span(data, size));
  // Nothing goes to the log: what the region was is what it will be.
  if (auto store = Kv::open(region, {.window = {}, .manual = true, .is_volatile = true}); store.ok()) {
    const bool sound = (*store)->verify().ok();
    use(**store, std::span(data, size), sound);
  }
  Region* const one = &region;
  must(Region::rollback({&one, 1}, Scope::process));
  return 0;
}
