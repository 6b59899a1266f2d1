// docs/kv.md, "Isolation": a read-only transaction gets values where they lie; they stay what they are until it ends,
// whatever others commit, and whatever goes home. Planted faults show that this test would see it, if they did not.
#include <gtest/gtest.h>

#include "base/random.hpp"
#include "mutants/mutants.hpp"
#include "unit/kv/kv_world.hpp"

namespace memlith::test::views_test {
namespace {

using namespace core;
using kv::Durability;
using kv::Transaction;

struct View {
  std::unique_ptr<Transaction> transaction;
  std::map<std::string, std::string_view> lying;
  Records seen;
};

std::string any_value(Random& random) {
  return std::string(random.one_in(3) ? 100 : 2000 + random.below(12'000), static_cast<char>('a' + random.below(26)));
}

// How many values did not stay.
int play(std::uint64_t seed) {
  KvWorld world;
  Random random(seed);
  auto map = world.map();
  Records model;
  std::vector<View> views;
  int wrong = 0;
  for (int round = 0; round < 300; ++round) {
    Transaction transaction(world.kv(), false);
    EXPECT_OK(transaction.begin());
    const std::string key = "key" + std::to_string(random.below(8));
    if (random.one_in(4)) {
      (void)must(transaction.remove(map, key));
      model.erase(key);
    } else {
      if (model.contains(key) && random.one_in(2)) {
        model[key][random.below(model[key].size())] = 'Z';
      } else {
        model[key] = any_value(random);
      }
      EXPECT_OK(transaction.put(map, key, model[key]));
    }
    EXPECT_OK(transaction.commit(Durability::weak, nullptr).status());
    for (const View& view : views) {
      for (const auto& [name, value] : view.lying) wrong += value != view.seen.at(name) ? 1 : 0;
    }
    if (random.one_in(4)) {
      View view{std::make_unique<Transaction>(world.kv(), true), {}, model};
      EXPECT_OK(view.transaction->begin());
      for (const auto& [name, value] : model) {
        view.lying[name] = must(view.transaction->get(map, name)).value_or(std::string_view());
      }
      views.push_back(std::move(view));
    }
    if (views.size() > 2) views.erase(views.begin());
    if (random.one_in(8)) {
      EXPECT_OK(world.kv().persist());
      EXPECT_OK(world.kv().region().store().checkpoint());
    }
    if (random.one_in(40)) {  // no page has changed since the opening
      views.clear();
      EXPECT_OK(world.kv().persist());
      world.crash();
      map = world.map();
    }
  }
  return wrong;
}

TEST(Views, StayAsTheyWere) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) EXPECT_EQ(play(seed), 0) << "seed " << seed;
}

class PlantedInViews : public ::testing::TestWithParam<Mutant> {
 protected:
  ~PlantedInViews() override { active_mutant = Mutant::none; }
};

TEST_P(PlantedInViews, IsFound) {
  active_mutant = GetParam();
  int wrong = 0;
  for (std::uint64_t seed = 1; seed <= 10 && wrong == 0; ++seed) wrong = play(seed);
  EXPECT_GT(wrong, 0) << "nothing was found";
}

INSTANTIATE_TEST_SUITE_P(Of, PlantedInViews,
                         ::testing::Values(Mutant::kv_run_freed_too_early, Mutant::kv_run_overwritten_under_a_view,
                                           Mutant::kv_page_left_to_its_file),
                         [](const auto& given) {
                           return given.param == Mutant::kv_run_freed_too_early            ? "FreedTooEarly"
                                  : given.param == Mutant::kv_run_overwritten_under_a_view ? "Overwritten"
                                                                                           : "LeftToItsFile";
                         });

}  // namespace
}  // namespace memlith::test::views_test
