// The witness of a disk test keeps what the writer was promised, where the power stays on: a file on another disk, or
// `memlith disktest listen` on another machine.
//
// A line of text first, "memlith-disktest 1 RUN BLOCKS", then a line for each round that is durable: its number.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cli/descriptor.hpp"
#include "cli/failure.hpp"
#include "disktest_plan.hpp"

namespace memlith::tool::disktest {

class Witness {
 public:
  // `where` is HOST:PORT, or a file that does not exist yet, on another file system than that of `folder`.
  static Result<Witness> reach(const std::string& where, const std::string& folder, const Plan& plan);
  // The round is durable, says the disk. Errors: the witness is gone.
  [[nodiscard]] MaybeFailure tell(std::uint64_t round);

 private:
  Witness(Descriptor descriptor, std::string where) : descriptor_(std::move(descriptor)), where_(std::move(where)) {}
  [[nodiscard]] MaybeFailure send(const std::string& line);

  Descriptor descriptor_;
  std::string where_;
};

struct Testimony {
  Plan plan;
  bool any = false;         // a round was told
  std::uint64_t round = 0;  // the newest that was told
};

// A last line without its end does not count.
Result<Testimony> read_testimony(const std::string& path);

// Takes one writer's lines into a new file, until the writer or its machine is gone.
struct Listening {
  std::uint16_t port = 0;  // 0: any free one
  std::string file;
  std::function<void(std::uint16_t)> bound;  // is told the port
};
Result<std::uint64_t> listen_to_writer(const Listening& listening);  // the number of lines

}  // namespace memlith::tool::disktest
