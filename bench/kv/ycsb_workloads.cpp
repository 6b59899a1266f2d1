// The workloads, and which records they take.
#include <algorithm>

#include "ycsb.hpp"

namespace memlith::tool {

namespace {

constexpr double kTheta = 0.99;

// As in "Quickly Generating Billion-Record Synthetic Databases": rank 0 is the most frequent.
class Zipfian final : public Chooser {
 public:
  Zipfian(std::uint64_t records, bool latest) : records_(records), latest_(latest) {
    double two = 0;
    for (std::uint64_t i = 1; i <= records; ++i) {
      zeta_ += 1.0 / std::pow(static_cast<double>(i), kTheta);
      if (i == 2) two = zeta_;
    }
    eta_ = (1 - std::pow(2.0 / static_cast<double>(records), 1 - kTheta)) / (1 - two / zeta_);
  }
  std::uint64_t next(Random& random, std::uint64_t records) const override {
    const std::uint64_t rank = std::min(draw(random), records_ - 1);
    if (latest_) return records - 1 - std::min(rank, records - 1);
    return Random(rank + 1).next() % records_;  // frequent ones are nowhere near each other
  }

 private:
  std::uint64_t draw(Random& random) const {
    const double u = static_cast<double>(random.next() >> 11) * 0x1.0p-53;
    const double uz = u * zeta_;
    if (uz < 1) return 0;
    if (uz < 1 + std::pow(0.5, kTheta)) return 1;
    return static_cast<std::uint64_t>(static_cast<double>(records_) * std::pow(eta_ * u - eta_ + 1, 1 / (1 - kTheta)));
  }
  std::uint64_t records_;
  bool latest_;
  double zeta_ = 0;
  double eta_ = 0;
};

class Uniform final : public Chooser {
 public:
  explicit Uniform(std::uint64_t records) : records_(records) {}
  std::uint64_t next(Random& random, std::uint64_t) const override { return random.below(records_); }

 private:
  std::uint64_t records_;
};

}  // namespace

std::unique_ptr<Chooser> make_chooser(const std::string& distribution, std::uint64_t records) {
  if (distribution == "uniform") return std::make_unique<Uniform>(records);
  return std::make_unique<Zipfian>(records, false);
}

std::unique_ptr<Chooser> make_latest_chooser(std::uint64_t records) { return std::make_unique<Zipfian>(records, true); }

const std::vector<YcsbWorkload>& ycsb_workloads() {
  using enum Operation;
  static const std::vector<YcsbWorkload> all{
      {"write", "updates", update, 100, update},
      {"read", "reads", read, 100, read},
      {"insert", "inserts of new records", insert, 100, insert},
      {"scan", "scans of 1 to 100 records", scan, 100, scan},
      {"modify", "reads and updates of one record, as one transaction", modify, 100, modify},
      {"a", "half reads, half updates", read, 50, update},
      {"b", "95 % reads, 5 % updates", read, 95, update},
      {"c", "reads", read, 100, read},
      {"d", "95 % reads of late records, 5 % inserts", read, 95, insert, true},
      {"e", "95 % scans, 5 % inserts", scan, 95, insert},
      {"f", "half reads, half reads and updates of one record, as one transaction", read, 50, modify},
  };
  return all;
}

std::vector<std::string> ycsb_workload_names() {
  std::vector<std::string> names;
  for (const YcsbWorkload& each : ycsb_workloads()) names.emplace_back(each.name);
  return names;
}

}  // namespace memlith::tool
