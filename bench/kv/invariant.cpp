// Suite invariant: two records, and transactions that all keep x < y, for a rig that cuts the power meanwhile. None is
// waited for, so the last ones may be gone after a cut; but x is never there without the y that was put before it, if a
// store keeps the order of its transactions.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "cli/interrupt.hpp"
#include "kit/try.hpp"
#include "kv_bench.hpp"
#include "peers/peer.hpp"
#include "records.hpp"

namespace memlith::tool {

namespace {

constexpr std::uint64_t kOthers = 2000;  // records whose keys lie between the two
constexpr const char* kSmaller = "!x";
constexpr const char* kLarger = "y";

// 0: it is not there.
Result<std::uint64_t> number_at(KvSession& session, const char* key) {
  std::string value;
  bool found = false;
  MEMLITH_TOOL_TRY(session.get(key, value, found));
  return found ? std::strtoull(value.c_str(), nullptr, 10) : 0;
}

}  // namespace

MaybeFailure run_invariant(const KvBenchArguments& arguments) {
  std::vector<KvPeer> sides{memlith_side()};
  std::ranges::move(kv_peers(), std::back_inserter(sides));
  std::vector<std::string> names;
  for (const KvPeer& each : sides) names.push_back(each.name);
  MEMLITH_TOOL_TRY(check_sides(arguments.sides, names));
  const auto side = std::ranges::find_if(sides, [&](const KvPeer& each) { return arguments.wants(each.name); });
  const std::uint64_t bytes = kOthers * (arguments.value_bytes + kTextKeyBytes);
  MEMLITH_TOOL_GET(const auto store,
                   side->open({.folder = arguments.folder, .durability = KvDurability::none, .bytes_expected = bytes}));
  MEMLITH_TOOL_GET(const auto session, store->session());
  MEMLITH_TOOL_GET(const std::uint64_t x, number_at(*session, kSmaller));
  MEMLITH_TOOL_GET(const std::uint64_t y, number_at(*session, kLarger));
  if (x != 0 && x >= y) return tool_failure(MEMLITH_CORRUPT, fmt::format("x is {}, and y is {}", x, y));
  write_line(fmt::format("{} {}", x, y));
  Random random(kSeed + y);
  const auto text = [&](std::uint64_t number) { return fmt::format("{:<{}}", number, arguments.value_bytes); };
  for (std::uint64_t number = y + 1; !interrupted(); ++number) {
    MEMLITH_TOOL_TRY(session->put(kLarger, text(number + 1)));
    MEMLITH_TOOL_TRY(session->put(scattered_key(random.below(kOthers)), text(number)));
    MEMLITH_TOOL_TRY(session->put(kSmaller, text(number)));
  }
  return {};
}

}  // namespace memlith::tool
