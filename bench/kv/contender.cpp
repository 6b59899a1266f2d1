#include "contender.hpp"

#include <filesystem>
#include <system_error>

#include "kit/try.hpp"

namespace memlith::tool {

MaybeFailure Contender::make(const ScratchFolder& scratch, KvOptions options) {
  scratch.remove(folder_name());
  std::error_code error;
  std::filesystem::create_directory(scratch.path_of(folder_name()), error);
  if (error) return errno_failure(error.value(), "making a folder");
  return open(scratch, std::move(options));
}

MaybeFailure Contender::open(const ScratchFolder& scratch, KvOptions options) {
  options.folder = scratch.path_of(folder_name());
  MEMLITH_TOOL_GET(store, peer.open(options));
  MEMLITH_TOOL_GET(session, store->session());
  return {};
}

MaybeFailure Contender::close() {
  MaybeFailure failure = session->finish();
  session.reset();
  store.reset();
  return failure;
}

Line Contender::line(std::string suite, std::string workload) const {
  Line line;
  line.suite = std::move(suite);
  line.side = peer.name;
  line.version = peer.version;
  line.workload = std::move(workload);
  line.durability = told;
  line.does = peer.text_of(durability);
  return line;
}

std::vector<std::string> names_of(const std::vector<KvPeer>& peers) {
  std::vector<std::string> names;
  for (const KvPeer& each : peers) names.push_back(each.name);
  return names;
}

MaybeFailure measure_workers(const std::vector<Contender*>& contenders, const PhaseLimits& limits, std::uint64_t seed,
                             const Once& once, std::vector<Side>& sides) {
  std::vector<std::vector<Worker>> crews(contenders.size());
  sides.resize(contenders.size());
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    for (std::uint64_t thread = 0; thread < limits.threads; ++thread) {
      MEMLITH_TOOL_GET(auto session, contenders[i]->store->session());
      crews[i].push_back({std::move(session), Random(seed + thread), {}});
    }
    sides[i].round = [&once, &contender = *contenders[i], &crew = crews[i]](std::size_t thread, std::uint64_t& ns) {
      return once(contender, crew[thread], ns);
    };
  }
  return measure_in_phases(sides, limits);
}

}  // namespace memlith::tool
