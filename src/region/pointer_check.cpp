#include "region/pointer_check.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>

#include "base/descriptor.hpp"
#include "base/host.hpp"
#include "base/sync.hpp"
#include "region/code_place.hpp"
#include "region/region.hpp"

// A function of AddressSanitizer's runtime; null in a process without it.
extern "C" [[gnu::weak]] void __asan_get_shadow_mapping(std::size_t* scale, std::size_t* offset);

namespace memlith::core {

namespace {

constexpr std::uint64_t kWordBytes = sizeof(std::uint64_t);
constexpr std::uint64_t kAddressMin = 0x10000;  // Linux maps nothing below
constexpr std::size_t kReportsMax = 1000;       // and no more is said in a process

std::uint64_t address_end() { return (std::uint64_t{1} << host_address_bits()) - kPageBytes; }

// Where Linux puts executables with their heaps, and libraries, mappings and stacks: from two thirds of the addresses
// on, and at their end; here for 47 bits of addresses. No region lies there but under ThreadSanitizer.
struct Places {
  std::uint64_t begin;
  std::uint64_t end;
  const char* what;
};
constexpr unsigned kPlacesBits = 47;
constexpr Places kPlaces[] = {
    {0x555000000000, 0x570000000000, "an address in a program or in memory of malloc"},
    {0x7e0000000000, 0x7ffffffff000, "an address in a library, in memory of malloc, or on a stack"},
};

const char* place_of(std::uint64_t address) {
  const unsigned bits = host_address_bits();
  const std::uint64_t scaled = bits >= kPlacesBits ? address >> (bits - kPlacesBits) : address << (kPlacesBits - bits);
  for (const Places& places : kPlaces) {
    if (scaled >= places.begin && scaled < places.end) return places.what;
  }
  return nullptr;
}

struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::string name;
};

SharedMutex g_mutex;
// Regions may outlive what is destroyed at exit.
std::map<std::uint64_t, std::uint64_t>& open_ranges() MEMLITH_REQUIRES(g_mutex) {
  static auto* const ranges = new std::map<std::uint64_t, std::uint64_t>;
  return *ranges;
}

bool in_open_region(std::uint64_t address) {
  const ExclusiveLock lock(g_mutex);
  auto after = open_ranges().upper_bound(address);
  return after != open_ranges().begin() && address < (--after)->second;
}

// AddressSanitizer notes in 16 TiB of memory, its shadow, which bytes are in use. No pointer of a program leads there,
// but the shadow's addresses are small enough for two numbers of 32 bits, such as {513, 513}, to look like one.
bool is_shadow(const Mapping& mapping) {
  if (__asan_get_shadow_mapping == nullptr) return false;
  std::size_t scale = 0;
  std::size_t offset = 0;
  __asan_get_shadow_mapping(&scale, &offset);
  return mapping.begin >= offset && mapping.end <= offset + (std::uint64_t{1} << 47 >> scale);
}

std::vector<Mapping> mappings_of_process() {
  std::vector<Mapping> mappings;
  std::istringstream maps(text_of("/proc/self/maps"));
  for (std::string line; std::getline(maps, line);) {
    Mapping mapping;
    int name = 0;
    char access[5] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %*x %*x:%*x %*u %n", &mapping.begin, &mapping.end, access, &name) < 3) {
      continue;
    }
    if (access[0] == '-' && access[1] == '-' && access[2] == '-') continue;  // reserved, and nothing there
    mapping.name = line.substr(std::min<std::size_t>(static_cast<std::size_t>(name), line.size()));
    if (!is_shadow(mapping)) mappings.push_back(std::move(mapping));
  }
  return mappings;
}

bool on_stack_of_thread(std::uint64_t address) {
  pthread_attr_t attributes;
  if (::pthread_getattr_np(::pthread_self(), &attributes) != 0) return false;
  void* begin = nullptr;
  std::size_t bytes = 0;
  (void)::pthread_attr_getstack(&attributes, &begin, &bytes);
  (void)::pthread_attr_destroy(&attributes);
  const auto from = reinterpret_cast<std::uint64_t>(begin);
  return address >= from && address < from + bytes;
}

std::string what_lies_at(std::uint64_t address, const Mapping& mapping) {
  if (on_stack_of_thread(address)) return "on the stack of this thread";
  if (mapping.name == "[stack]") return "on the stack of the main thread";
  if (mapping.name.empty() || mapping.name == "[heap]" || mapping.name.starts_with("[anon"))
    return "in memory of malloc, new or mmap";
  const std::string symbol = symbol_at(address);
  return "in " + mapping.name + (symbol.empty() ? "" : ", " + symbol);
}

// Where each word lies, for people; empty for a word that is none of the program's.
std::vector<std::string> places_of(const Region& region, std::span<const AddressWord> words) {
  if (region.guard() != nullptr) {
    std::vector<std::uint64_t> offsets;
    for (const AddressWord& word : words) offsets.push_back(word.offset);
    return region.guard()->where(offsets);
  }
  std::vector<std::string> places;
  for (const AddressWord& word : words)
    places.push_back(fmt::format("region \"{}\", offset {:#x}", region.shown_name(), word.offset));
  return places;
}

bool is_new(const AddressWord& word) {
  static auto* const seen = new std::set<std::tuple<std::string, std::uint64_t, std::uint64_t>>;
  const ExclusiveLock lock(g_mutex);
  if (seen->size() >= kReportsMax) return false;
  return seen->emplace(word.region->store().path() + "/" + word.region->name(), word.offset, word.value).second;
}

}  // namespace

bool pointers_are_checked() {
  static const bool checked = [] {
    const char* const wanted = std::getenv("MEMLITH_CHECK_POINTERS");
    return wanted != nullptr && std::string_view(wanted) != "" && std::string_view(wanted) != "0";
  }();
  return checked;
}

void note_region_range(std::uint64_t begin, std::uint64_t bytes) {
  const ExclusiveLock lock(g_mutex);
  open_ranges()[begin] = begin + bytes;
}

void forget_region_range(std::uint64_t begin) {
  const ExclusiveLock lock(g_mutex);
  open_ranges().erase(begin);
}

void find_addresses(const Region& region, std::uint64_t offset, std::uint64_t bytes, std::vector<AddressWord>& words) {
  const auto base = reinterpret_cast<std::uint64_t>(region.address());
  const std::uint64_t end = std::min(offset + bytes, region.size() / kWordBytes * kWordBytes);
  const std::uint64_t beyond = address_end();
  for (std::uint64_t at = offset / kWordBytes * kWordBytes; at < end; at += kWordBytes) {
    std::uint64_t value = 0;
    std::memcpy(&value, region.address() + at, sizeof value);
    // A region that lies anywhere in this process lies elsewhere where its pointers lead into it.
    const bool inside = !region.anywhere() && value >= base && value < base + region.reserve();
    if (value >= kAddressMin && value < beyond && !inside) words.push_back({&region, at, value});
  }
}

void report_addresses(std::span<const AddressWord> words) {
  if (words.empty()) return;
  const std::vector<Mapping> mappings = mappings_of_process();
  std::map<const Region*, std::vector<AddressWord>> found;
  std::map<std::uint64_t, std::string> meanings;
  for (const AddressWord& word : words) {
    const auto mapping = std::find_if(mappings.begin(), mappings.end(), [&](const Mapping& each) {
      return word.value >= each.begin && word.value < each.end;
    });
    if (mapping == mappings.end() || in_open_region(word.value) || !is_new(word)) continue;
    found[word.region].push_back(word);
    meanings.try_emplace(word.value, what_lies_at(word.value, *mapping));
  }
  for (const auto& [region, of_region] : found) {
    const std::vector<std::string> places = places_of(*region, of_region);
    for (std::size_t i = 0; i < of_region.size(); ++i) {
      if (places[i].empty()) continue;
      const std::uint64_t value = of_region[i].value;
      const std::string line =
          fmt::format("memlith: {}: {}: the pointer {:#x} leads {}, which is not there in the next run\n",
                      region->store().path(), places[i], value, meanings[value]);
      (void)!::write(STDERR_FILENO, line.data(), line.size());
    }
  }
}

std::vector<std::string> addresses_of_processes(const Region& region) {
  std::vector<AddressWord> words;
  find_addresses(region, 0, region.size(), words);
  std::erase_if(words, [](const AddressWord& word) { return place_of(word.value) == nullptr; });
  std::vector<std::string> sentences;
  const std::vector<std::string> places = places_of(region, words);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (places[i].empty()) continue;
    sentences.push_back(fmt::format("{}: {:#x} looks like {}", places[i], words[i].value, place_of(words[i].value)));
  }
  return sentences;
}

}  // namespace memlith::core
