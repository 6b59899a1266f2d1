// An order that goes on where the program was killed: durable steps (docs/steps.md).
//
//   order FOLDER ORDER [kill]     reserves, charges and reports; with "kill", the program dies while it charges
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <string>
#include <string_view>

#include "memlith/steps.hpp"

namespace {

int failed(const memlith::Error& error) {
  std::cerr << "order: " << error.message() << "\n";
  return 1;
}

int execute(memlith::steps::Journal& journal, const std::string& id, bool dies) {
  auto stock = journal.records().map("stock", {.create = true});
  if (!stock) return failed(stock.error());
  auto run = journal.run(id);  // found again after a crash, or begun
  if (!run) return failed(run.error());
  auto left = run->step("reserve", [&](memlith::steps::Step& step) -> memlith::Result<int> {
    auto found = step.records().find(*stock, "marble");
    if (!found) return found.error();
    const int now = found->has_value() ? std::stoi(std::string(**found)) - 1 : 9;
    if (auto put = step.records().put(*stock, "marble", std::to_string(now)); !put) return put.error();
    if (auto sent = step.send(id + " reserved"); !sent) return sent.error();
    std::cout << "reserve\n";
    return now;
  });
  if (!left) return failed(left.error());
  auto receipt = run->effect("charge",
                             [&](std::string_view key) {
                               std::cout << "charge with key " << key.size() << " bytes\n" << std::flush;
                               if (dies) (void)::kill(::getpid(), SIGKILL);
                               return std::string("receipt for 500");
                             },
                             {.key = id.ends_with("keyless") ? "" : run->key()});
  if (!receipt) return failed(receipt.error());
  if (auto done = run->finish(*receipt); !done) return failed(done.error());
  std::cout << *receipt << ", " << *left << " left\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cout << "usage: order FOLDER ORDER [kill]\n";
    return 1;
  }
  auto store = memlith::Store::open(argv[1], {.create = true});
  if (!store) return failed(store.error());
  auto journal = memlith::steps::Journal::open(*store);
  if (!journal) return failed(journal.error());
  const int code = execute(*journal, argv[2], argc > 3 && std::string_view(argv[3]) == "kill");
  if (auto closed = journal->close(); !closed) return failed(closed.error());
  return code;
}
