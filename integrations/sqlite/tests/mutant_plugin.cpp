// The plugin with one of its mutants, which the environment names: MEMLITH_SQLITE_MUTANT. For tests that have to notice
// it.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "mutants/mutants.hpp"

namespace memlith::core {
namespace {

[[gnu::constructor]] void switch_on() {
  const char* const wanted = std::getenv("MEMLITH_SQLITE_MUTANT");
  if (wanted == nullptr) return;
#define MEMLITH_SWITCH_ON(name, floor, what) \
  if (std::string_view(wanted) == #name) active_mutant = Mutant::name;
  MEMLITH_SQLITE_MUTANT_LIST(MEMLITH_SWITCH_ON)
#undef MEMLITH_SWITCH_ON
  if (active_mutant != Mutant::none) return;
  std::fprintf(stderr, "MEMLITH_SQLITE_MUTANT: there is no mutant %s\n", wanted);
  std::abort();
}

}  // namespace
}  // namespace memlith::core
