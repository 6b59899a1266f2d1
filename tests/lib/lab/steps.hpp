// The steps that workloads are made of, with a text each; and the workloads whose steps are drawn by seed or are
// about regions.
#pragma once

#include <string>
#include <vector>

#include "base/random.hpp"
#include "run.hpp"
#include "run_regions.hpp"

namespace memlith::lab {

Step open();
Step close();
Step abandon();
Step checkpoint();
Step write_home();      // writes home, without a flush, what the log has
Step idle();            // a store without commits goes home by pieces of two pages
Step wait_for_those();  // all that was captured without a wait
Step create(const std::string& name, std::uint64_t size);
Step remove(const std::string& name);
Step commit(const std::vector<Write>& writes, std::uint64_t size = 0);
Step resize_file(std::uint64_t size, const Write& write);
// Several commits in one batch. A program that tries again does the first one only, so that what was in flight behind
// it must not follow.
Step batch(const std::vector<std::vector<Write>>& commits, std::size_t until = ~std::size_t{0});
Step map(const std::string& name, std::uint64_t size, core::TrackerKind tracker = core::TrackerKind::touched);
Step unmap(const std::string& name);
Step store(const std::string& name, std::uint64_t offset, std::uint64_t bytes);
Step clear(const std::string& name, std::uint64_t offset, std::uint64_t bytes);
Step grow(const std::string& name, std::uint64_t size);
Step persist(const std::vector<std::string>& names);
Step checkpoint_inside(const Write& write);

// The step, which a program that tries again replaces by another one, or does behind another one.
Step instead(const Step& other, Step step);
Step behind(const Step& other, Step step);

// The steps of a structure. What a program does again after a crash in the middle of one begins with opening it.
struct StructureSteps {
  explicit StructureSteps(Step first) : opening(std::move(first)) {}
  template <class Word, class... Given>
  Step word(std::string text, Word act, Given... given) const {
    return behind(opening, step(std::move(text), act, given...));
  }
  Step opening;
};

std::vector<Step> group_commit(core::Random& random);
std::vector<Step> background_checkpoints(core::Random& random);
std::vector<Step> random_history(core::Random& random);
std::vector<Step> random_file_history(core::Random& random);
// The file becomes shorter as often as longer.
std::vector<Step> random_file_lengths(core::Random& random);
std::vector<Step> random_region_history(core::Random& random);
std::vector<Step> random_page_history(core::Random& random);
std::vector<Step> random_recorded_history(core::Random& random);

}  // namespace memlith::lab
