#include "power/lossy_disk.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/random.hpp"

namespace memlith::power {

namespace {

constexpr std::uint64_t kBlockBytes = 4096;
constexpr std::uint64_t kSectorsPerBlock = kBlockBytes / kSectorBytes;
constexpr std::uint64_t kThousand = 1000;

// The image is the rig's own file: if that fails, nothing it says is worth anything.
[[noreturn]] void image_failed(const char* what) {
  std::perror(what);
  std::_Exit(2);
}

// How a cut chooses. Real disks lose in patterns, not in white noise: a queue that was emptied up to a point, one
// request that was late, a cache that wrote everything but one line.
enum class Style { atoms, biased, requests, none, all, all_but_one, only_one, prefix };
constexpr std::pair<Style, const char*> kStyles[] = {
    {Style::atoms, "atoms"},       {Style::atoms, "atoms"},       {Style::biased, "biased"},
    {Style::biased, "biased"},     {Style::requests, "requests"}, {Style::requests, "requests"},
    {Style::none, "none"},         {Style::all, "all"},           {Style::all_but_one, "all-but-one"},
    {Style::only_one, "only-one"}, {Style::prefix, "prefix"},     {Style::prefix, "prefix"}};

// Decides for every write and atom by hashing them with the seed, so the order in which it is asked does not matter.
class Choice {
 public:
  Choice(std::uint64_t seed, const std::set<std::uint64_t>& requests) {
    core::Random random(seed);
    std::tie(style_, name_) = kStyles[random.below(std::size(kStyles))];
    share_ = style_ == Style::biased ? random.below(kThousand + 1) : kThousand / 2;
    salt_ = random.next();
    if (!requests.empty())
      special_ = *std::next(requests.begin(), static_cast<std::ptrdiff_t>(random.below(requests.size())));
  }

  [[nodiscard]] const char* name() const { return name_; }
  [[nodiscard]] bool keeps(std::uint64_t request, std::uint64_t atom) const {
    switch (style_) {
      case Style::atoms:
      case Style::biased: return draw(request, atom);
      case Style::requests: return draw(request, 0);
      case Style::none: return false;
      case Style::all: return true;
      case Style::all_but_one: return request != special_ || draw(request, atom);
      case Style::only_one: return request == special_ && draw(request, atom);
      case Style::prefix: return request < special_ || (request == special_ && draw(request, atom));
    }
    return false;
  }

 private:
  [[nodiscard]] bool draw(std::uint64_t request, std::uint64_t atom) const {
    core::Random random(salt_ ^ core::Random(request).next() ^ core::Random(~atom).next());
    return random.below(kThousand) < share_;
  }

  Style style_ = Style::none;
  const char* name_ = "";
  std::uint64_t share_ = 0;  // of a thousand
  std::uint64_t salt_ = 0;
  std::uint64_t special_ = 0;
};

}  // namespace

LossyDisk::LossyDisk(int image, std::uint64_t bytes, DiskRules rules)
    : image_(image), bytes_(bytes), rules_(std::move(rules)) {}

bool LossyDisk::valid(std::uint64_t offset, std::uint64_t bytes) const {
  return offset % kSectorBytes == 0 && bytes % kSectorBytes == 0 && offset <= bytes_ && bytes <= bytes_ - offset;
}

void LossyDisk::read(std::uint64_t offset, std::span<std::byte> target) const {
  std::uint64_t done = 0;
  while (done < target.size()) {
    const ssize_t got = ::pread(image_, target.data() + done, target.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) image_failed("power-disk: reading the image");
    if (got == 0) break;
    done += static_cast<std::uint64_t>(got);
  }
  std::memset(target.data() + done, 0, target.size() - done);
  for (std::uint64_t at = 0; at < target.size(); at += kSectorBytes) {
    const std::uint64_t sector = (offset + at) / kSectorBytes;
    if (const auto found = pending_.find(sector); found != pending_.end()) {
      std::memcpy(target.data() + at, found->second.back().bytes.data(), kSectorBytes);
    } else if (const auto flushed = durable_.find(sector); flushed != durable_.end()) {
      std::memcpy(target.data() + at, flushed->second.data(), kSectorBytes);
    }
  }
}

void LossyDisk::write(std::uint64_t offset, std::span<const std::byte> source, bool durable) {
  ++request_;
  if (durable) ++forced_;
  const bool torn = begins_torn(source);
  for (std::uint64_t at = 0; at < source.size(); at += kSectorBytes) {
    const std::uint64_t sector = (offset + at) / kSectorBytes;
    if (durable && !rules_.lies) {
      std::memcpy(durable_[sector].data(), source.data() + at, kSectorBytes);
      pending_.erase(sector);  // older writes of this sector: they can no longer come out on top
    } else {
      Pending& pending = pending_[sector].emplace_back();
      pending.request = request_;
      pending.torn = torn;
      std::memcpy(pending.bytes.data(), source.data() + at, kSectorBytes);
    }
  }
}

void LossyDisk::flush() {
  ++flushes_;
  if (rules_.lies) return;
  for (const auto& [sector, versions] : pending_) durable_[sector] = versions.back().bytes;
  pending_.clear();
}

bool LossyDisk::begins_torn(std::span<const std::byte> source) const {
  return rules_.atom_bytes == kSectorBytes ||
         std::any_of(rules_.torn_prefixes.begin(), rules_.torn_prefixes.end(), [&](const std::string& prefix) {
           return source.size() >= prefix.size() && std::memcmp(source.data(), prefix.data(), prefix.size()) == 0;
         });
}

std::uint64_t LossyDisk::atom_of(std::uint64_t sector, bool torn) const {
  const std::uint64_t offset = sector * kSectorBytes;
  const bool whole = std::any_of(rules_.whole_blocks.begin(), rules_.whole_blocks.end(),
                                 [&](const auto& range) { return offset >= range.first && offset < range.second; });
  const std::uint64_t sectors = whole || !torn ? kSectorsPerBlock : 1;
  return sector / sectors * sectors;
}

CutResult LossyDisk::cut(std::uint64_t seed) {
  std::set<std::uint64_t> requests;
  for (const auto& [sector, versions] : pending_) {
    for (const Pending& version : versions) requests.insert(version.request);
  }
  const Choice choice(seed, requests);
  CutResult result{choice.name(), requests.size(), 0, 0};
  for (const auto& [sector, versions] : pending_) {
    for (const Pending& version : versions) {
      if (choice.keeps(version.request, atom_of(sector, version.torn))) {
        durable_[sector] = version.bytes;
        ++result.kept;
      } else {
        ++result.dropped;
      }
    }
  }
  pending_.clear();
  write_image();
  return result;
}

CutResult LossyDisk::lose() {
  CutResult result{"none", 0, 0, 0};
  for (const auto& [sector, versions] : pending_) result.dropped += versions.size();
  pending_.clear();
  write_image();
  return result;
}

void LossyDisk::finish() {
  for (const auto& [sector, versions] : pending_) durable_[sector] = versions.back().bytes;
  pending_.clear();
  write_image();
}

void LossyDisk::write_image() const {
  for (const auto& [sector, bytes] : durable_) {
    ssize_t done = 0;
    do {
      done = ::pwrite(image_, bytes.data(), bytes.size(), static_cast<off_t>(sector * kSectorBytes));
    } while (done < 0 && errno == EINTR);
    if (done != static_cast<ssize_t>(kSectorBytes)) image_failed("power-disk: writing the image");
  }
}

}  // namespace memlith::power
