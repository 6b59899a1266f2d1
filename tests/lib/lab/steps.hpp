// The steps that workloads are made of, with a text each; and the workloads whose steps are drawn by seed or are
// about regions.
#pragma once

#include <string>
#include <vector>

#include "base/random.hpp"
#include "run.hpp"

namespace memlith::lab {

Step open();
Step close();
Step abandon();
Step checkpoint();
Step create(std::string name, std::uint64_t size);
Step remove(std::string name);
Step commit(std::vector<Write> writes, std::uint64_t size = 0);
Step resize_file(std::uint64_t size, Write write);
// Several commits in one batch. A program that tries again does the first one only, so that what was in flight behind
// it must not follow.
Step batch(std::vector<std::vector<Write>> commits, std::size_t until = ~std::size_t{0});
Step map(std::string name, std::uint64_t size, core::TrackerKind tracker = core::TrackerKind::touched);
Step unmap(std::string name);
Step store(std::string name, std::uint64_t offset, std::uint64_t bytes);
Step clear(std::string name, std::uint64_t offset, std::uint64_t bytes);
Step grow(std::string name, std::uint64_t size);
Step persist(std::vector<std::string> names);
Step checkpoint_inside(Write write);

std::vector<Step> group_commit(core::Random& random);
std::vector<Step> background_checkpoints(core::Random& random);
std::vector<Step> random_history(core::Random& random);
std::vector<Step> random_file_history(core::Random& random);
// The file becomes shorter as often as longer.
std::vector<Step> random_file_lengths(core::Random& random);
std::vector<Step> random_region_history(core::Random& random);
std::vector<Step> random_page_history(core::Random& random);
std::vector<Step> random_recorded_history(core::Random& random);

std::vector<Step> regions(core::Random& random);
std::vector<Step> snapshots(core::Random& random);
std::vector<Step> region_growth(core::Random& random);
std::vector<Step> regions_too_large(core::Random& random);
std::vector<Step> page_copies(core::Random& random);
std::vector<Step> scopes(core::Random& random);
std::vector<Step> recorded_scopes(core::Random& random);
std::vector<Step> recorded_too_large(core::Random& random);
std::vector<Step> transactions(core::Random& random);
std::vector<Step> transactions_too_large(core::Random& random);
std::vector<Step> ranges(core::Random& random);
std::vector<Step> discards(core::Random& random);
std::vector<Step> discarded_pages(core::Random& random);
std::vector<Step> packed(core::Random& random);
std::vector<Step> region_joined(core::Random& random);
std::vector<Step> page_regions(core::Random& random);
std::vector<Step> touched_file(core::Random& random);
std::vector<Step> scanned_file(core::Random& random);
std::vector<Step> moments(core::Random& random);
std::vector<Step> random_moments(core::Random& random);
std::vector<Step> holes(core::Random& random);
std::vector<Step> file_image_syncs(core::Random& random);
std::vector<Step> file_image_lengths(core::Random& random);
std::vector<Step> file_image_regrown(core::Random& random);
std::vector<Step> random_file_image(core::Random& random);
std::vector<Step> guarded_file(core::Random& random);
std::vector<Step> used_file(core::Random& random);
std::vector<Step> random_used_file(core::Random& random);
std::vector<Step> file_image_detached(core::Random& random);

}  // namespace memlith::lab
