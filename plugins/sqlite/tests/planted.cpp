// The plugin with one of the mistakes of sabotage.hpp, which the environment names: MEMLITH_SQLITE_PLANTED. For tests
// that have to notice it.
#include <cstdlib>
#include <string_view>

#include "sqlite/src/sabotage.hpp"

namespace memlith::sqlite {
namespace {

struct Name {
  std::string_view name;
  bool Sabotage::* mistake;
};
constexpr Name kNames[] = {
    {"shared_skip_commit_wait", &Sabotage::shared_skip_commit_wait},
    {"shared_skip_reader_wait", &Sabotage::shared_skip_reader_wait},
    {"shared_look_after_flush", &Sabotage::shared_look_after_flush},
    {"shared_skip_checkpoint_flush", &Sabotage::shared_skip_checkpoint_flush},
};

[[gnu::constructor]] void plant() {
  const char* const wanted = std::getenv("MEMLITH_SQLITE_PLANTED");
  if (wanted == nullptr) return;
  for (const Name& each : kNames) {
    if (each.name == wanted) sabotage.*each.mistake = true;
  }
}

}  // namespace
}  // namespace memlith::sqlite
