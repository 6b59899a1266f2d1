// boost::interprocess::managed_external_buffer in a region, as it is: its allocator and its names are bytes of the
// region, and a persist covers them with what they hold. Each run finds what the run before persisted. See
// containers.hpp.
#include <boost/container/map.hpp>
#include <boost/container/string.hpp>
#include <boost/interprocess/allocators/allocator.hpp>
#include <boost/interprocess/managed_external_buffer.hpp>

#include "containers.hpp"

namespace bi = boost::interprocess;
namespace bc = boost::container;

using Buffer = bi::managed_external_buffer;
template <class T>
using In = bi::allocator<T, Buffer::segment_manager>;
using String = bc::basic_string<char, std::char_traits<char>, In<char>>;
using Map = bc::map<String, int, std::less<>, In<std::pair<const String, int>>>;

int main(int argc, char** argv) {
  using namespace containers;
  if (argc != 3) fail("usage: PROGRAM FOLDER add|destroy");
  constexpr std::uint64_t kBytes = 1 << 20;
  const memlith::Store store = must(memlith::Store::open(argv[1], {.create = true}));
  const memlith::Region region =
      must(store.region("interprocess", {.create = true, .tracker = kTracker, .size = kBytes}));
  auto* const bytes = static_cast<char*>(region.address());
  const bool empty = std::all_of(bytes, bytes + 4096, [](char byte) { return byte == 0; });
  Buffer buffer = empty ? Buffer(bi::create_only, bytes, kBytes) : Buffer(bi::open_only, bytes, kBytes);
  Map& map = *buffer.find_or_construct<Map>("map")(buffer.get_segment_manager());
  int count = static_cast<int>(map.size());
  for (const auto& [key, number] : map) {
    if (number_of(key) != number || number >= count) fail("the map does not hold what was persisted");
  }
  if (argv[2] == std::string_view("destroy")) {
    if (!buffer.destroy<Map>("map") || !buffer.all_memory_deallocated()) fail("something is left in the buffer");
    must(region.persist());
    return 0;
  }
  const auto add = [&] {
    for (int i = count; i < count + kRound; ++i) {
      map.emplace(String(make<std::string>(i).c_str(), buffer.get_segment_manager()), i);
    }
    count += kRound;
  };
  add();
  must(region.persist());
  std::printf("%d\n", count / kRound);
  std::fflush(stdout);
  add();       // never persisted
  ::_exit(0);  // as a kill would
}
