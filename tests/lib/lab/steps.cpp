#include "steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace memlith::lab {

using namespace core;

Step instead(const Step& other, Step step) {
  step.again = other.act;
  return step;
}
Step behind(const Step& other, Step step) {
  step.again = [before = other.act, act = step.again != nullptr ? step.again : step.act](Run& run) {
    before(run);
    act(run);
  };
  return step;
}

Step open() { return step("open the store", &Run::open); }
Step close() { return step("close the store", &Run::close); }
Step abandon() { return step("leave the store without closing it", &Run::abandon); }
Step checkpoint() { return step("checkpoint", &Run::checkpoint); }
Step write_home() { return step("homes are brought up to date", &Run::write_home); }
Step idle() { return step("no commits for a while", &Run::idle); }
Step wait_for_those() { return step("wait for those", &Run::wait); }
Step create(const std::string& name, std::uint64_t size) {
  return step(fmt::format("create {} of {} bytes", name, size), &Run::create, name, size);
}
Step remove(const std::string& name) { return step("remove " + name, &Run::remove, name); }
Step commit(const std::vector<Write>& writes, std::uint64_t size) {
  return step(text_of_commit(writes, size), &Run::commit, writes, size);
}
Step resize_file(std::uint64_t size, const Write& write) {
  return step(fmt::format("the file becomes {} bytes long, with {} bytes at {}", size, write.bytes, write.offset),
              &Run::resize_file, size, write);
}
Step batch(const std::vector<std::vector<Write>>& commits, std::size_t until) {
  std::string text = "in one batch:";
  for (const auto& writes : commits) text += " " + text_of_commit(writes, 0) + ";";
  if (until < commits.size()) text += fmt::format(" waiting for {} of them", until);
  return instead(commit(commits.front()), step(text, &Run::batch, commits, until));
}
Step map(const std::string& name, std::uint64_t size, TrackerKind tracker) {
  return step("map region " + name, map_region, name, size, tracker);
}
Step unmap(const std::string& name) { return step("close region " + name, &Regions::unmap, name); }
Step store(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
  return step(fmt::format("store to {}[{}..{})", name, offset, offset + bytes), &Regions::store, name, offset, bytes);
}
Step clear(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
  return step(fmt::format("clear {}[{}..{})", name, offset, offset + bytes), &Regions::clear, name, offset, bytes);
}
Step grow(const std::string& name, std::uint64_t size) {
  return step(fmt::format("grow region {} to {}", name, size), &Regions::grow, name, size);
}
Step persist(const std::vector<std::string>& names) {
  return step(fmt::format("persist {}", fmt::join(names, " and ")), &Regions::persist, names, Scope::process, true);
}
Step checkpoint_inside(const Write& write) {
  return instead(commit({write}),
                 step(text_of_commit({write}, 0) + ", with a checkpoint between its write and its flush",
                      &Run::commit_with_checkpoint_inside, write));
}

// ---- histories drawn by seed -----------------------------------------------------------------------------------

std::vector<Step> group_commit(Random&) {
  return {open(), create("t0", 4096), create("t1", 4096), create("t2", 4096),
          step("three threads commit six times each", &Run::threads, std::vector<std::string>{"t0", "t1", "t2"}, 6)};
}

std::vector<Step> background_checkpoints(Random& random) {
  std::vector<Step> steps{open(), create("a", 8192)};
  for (int i = 0; i < 25; ++i) steps.push_back(commit({{"a", random.below(5000), 1 + random.below(3000)}}));
  steps.push_back(close());
  return steps;
}

std::vector<Step> random_history(Random& random) {
  std::vector<Step> steps{open()};
  std::map<std::string, std::uint64_t> sizes;
  while (steps.size() < 26) {
    const std::string name = "o" + std::to_string(random.below(3));
    const auto object = sizes.find(name);
    if (object == sizes.end()) {
      sizes[name] = 4096 * (1 + random.below(3));
      steps.push_back(create(name, sizes[name]));
      continue;
    }
    const auto place = [&random](std::uint64_t size) {
      const std::uint64_t offset = random.below(size);
      return std::pair(offset, 1 + random.below(std::min<std::uint64_t>(size - offset, random.one_in(3) ? 5000 : 600)));
    };
    const auto [offset, bytes] = place(object->second);
    switch (random.below(14)) {
      case 0: steps.push_back(random.one_in(3) ? checkpoint() : write_home()); break;
      case 1: steps.push_back(close()), steps.push_back(open()); break;
      case 2: steps.push_back(abandon()), steps.push_back(open()); break;
      case 3:
        steps.push_back(remove(name));
        sizes.erase(name);
        break;
      case 4:
        object->second += 4096;
        steps.push_back(commit({{name, object->second - 4096, 700}}, object->second));
        break;
      case 5:
      case 6: {
        std::vector<std::vector<Write>> commits;
        for (std::uint64_t i = 2 + random.below(3); i > 0; --i) {
          const auto [begin, length] = place(object->second);
          commits.push_back({{name, begin, std::min<std::uint64_t>(length, 600)}});
        }
        const std::size_t count = commits.size();
        steps.push_back(batch(commits, random.below(count + 1)));
        break;
      }
      case 7: steps.push_back(checkpoint_inside({name, offset, std::min<std::uint64_t>(bytes, 900)})); break;
      default: {
        std::vector<Write> writes{{name, offset, bytes}};
        if (random.one_in(2)) {
          for (const auto& [other, size] : sizes) {
            if (other != name) writes.push_back({other, random.below(size - 100), 1 + random.below(100)});
          }
        }
        steps.push_back(commit(writes));
        break;
      }
    }
  }
  return steps;
}

std::vector<Step> random_file_history(Random& random) {
  std::vector<Step> steps{open()};
  std::uint64_t size = 5003;
  while (steps.size() < 22) {
    const std::uint64_t offset = random.below(size);
    const std::uint64_t bytes = 1 + random.below(std::min<std::uint64_t>(size - offset, 3000));
    switch (random.below(9)) {
      case 0: steps.push_back(random.one_in(3) ? checkpoint() : write_home()); break;
      case 1: steps.push_back(close()), steps.push_back(open()); break;
      case 2: steps.push_back(abandon()), steps.push_back(open()); break;
      case 3:
      case 4: {
        size += 1 + random.below(5000);
        const std::uint64_t tail = 1 + random.below(400);
        steps.push_back(commit({{"file", size - tail, tail}}, size));
        break;
      }
      default: steps.push_back(commit({{"file", offset, bytes}})); break;
    }
  }
  return steps;
}

std::vector<Step> random_file_lengths(Random& random) {
  // A write that lies over the end that the file then gets.
  std::vector<Step> steps{open(), resize_file(9000, {"file", 100, 50}), commit({{"file", 5000, 3000}}),
                          resize_file(6000 + random.below(500), {"file", 10, 10})};
  while (steps.size() < 18) {
    switch (random.below(8)) {
      case 0: steps.push_back(random.one_in(3) ? checkpoint() : write_home()); break;
      case 1: steps.push_back(close()), steps.push_back(open()); break;
      case 2: steps.push_back(abandon()), steps.push_back(open()); break;
      default:
        steps.push_back(resize_file(1 + random.below(12000), {"file", random.below(12000), 1 + random.below(900)}));
        break;
    }
  }
  return steps;
}

namespace {

std::vector<Step> region_history(Random& random, TrackerKind tracker) {
  std::vector<Step> steps{open()};
  std::map<std::string, std::uint64_t> sizes{{"a", 8192}, {"b", 4096}};
  const auto map_all = [&] {
    for (const auto& [name, size] : sizes) steps.push_back(map(name, size, tracker));
  };
  map_all();
  while (steps.size() < 36) {
    const std::string name = random.one_in(2) ? "a" : "b";
    std::uint64_t& size = sizes[name];
    switch (random.below(12)) {
      case 0: steps.push_back(random.one_in(3) ? checkpoint() : write_home()); break;
      case 1: steps.push_back(close()), steps.push_back(open()), map_all(); break;
      case 2: steps.push_back(abandon()), steps.push_back(open()), map_all(); break;
      case 3:
        size += 4096;
        steps.push_back(grow(name, size));
        break;
      case 4: steps.push_back(unmap(name)), steps.push_back(map(name, size, tracker)); break;
      case 5:
      case 6: steps.push_back(persist({name})); break;
      case 7: steps.push_back(persist({"a", "b"})); break;
      default: {
        const std::uint64_t offset = random.below(size - 1);
        const std::uint64_t bytes = 1 + random.below(std::min<std::uint64_t>(size - offset - 1, 1500) + 1);
        // Back to what it was, now and then.
        steps.push_back(random.one_in(4) ? clear(name, offset, bytes) : store(name, offset, bytes));
        break;
      }
    }
  }
  return steps;
}

}  // namespace

std::vector<Step> random_region_history(Random& random) { return region_history(random, TrackerKind::touched); }
std::vector<Step> random_page_history(Random& random) { return region_history(random, TrackerKind::scan); }
std::vector<Step> random_recorded_history(Random& random) { return region_history(random, TrackerKind::instrumented); }

}  // namespace memlith::lab
