// A disk of a keeper, whose power can go.
#pragma once

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <memory>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "region/session.hpp"
#include "sim/decorators.hpp"
#include "sim/sim.hpp"

namespace memlith::core {

// Each transfer to the disk holds the power meanwhile.
class Plugged final : public DeviceDecorator {
 public:
  Plugged(std::unique_ptr<Device> below, std::shared_mutex& power) : DeviceDecorator(std::move(below)), power_(power) {}

 protected:
  Status do_write(std::uint64_t offset, std::span<const iovec> pieces) override {
    const std::shared_lock lock(power_);
    return DeviceDecorator::do_write(offset, pieces);
  }
  Result<bool> do_write_through(std::uint64_t offset, std::span<const iovec> pieces) override {
    const std::shared_lock lock(power_);
    return DeviceDecorator::do_write_through(offset, pieces);
  }
  Status do_flush() override {
    const std::shared_lock lock(power_);
    return DeviceDecorator::do_flush();
  }

 private:
  std::shared_mutex& power_;
};

// A disk in the memory of the keeper. When the power goes, a file gets what is on the medium then, and the keeper ends.
class SimulatedDisk {
 public:
  // `cut`: not 0 when the power goes; a seed.
  SimulatedDisk(std::string path, const std::atomic<std::uint64_t>& cut)
      : path_(std::move(path)), volume_(load(), true) {
    std::thread([this, &cut] {
      while (cut == 0) ::usleep(100);
      cut_off(cut);
    }).detach();
  }
  Result<std::unique_ptr<Session>> open() {
    StoreOptions options;
    options.create = true;
    options.slot_bytes = 64 * kKiB;
    options.log_bytes = 4 * options.slot_bytes;
    options.log_max_bytes = 64 * options.slot_bytes;
    return Session::open({std::make_unique<Plug>(volume_, power_), ""}, std::move(options));
  }

 private:
  class Plug final : public VolumeDecorator {
   public:
    Plug(Volume& below, std::shared_mutex& power) : VolumeDecorator(below), power_(power) {}

   private:
    std::unique_ptr<Device> decorate(std::unique_ptr<Device> device, std::string_view /*name*/,
                                     bool /*writable*/) override {
      return std::make_unique<Plugged>(std::move(device), power_);
    }
    std::shared_mutex& power_;
  };

  [[noreturn]] void cut_off(std::uint64_t seed) {
    power_.lock();
    const SimTrace trace = volume_.copy_trace();
    const SimMedium medium(trace, trace.records.size());
    Random random(seed);
    const std::uint64_t of_eight = random.below(9);
    std::vector<bool> kept(medium.pending_count());
    for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = random.below(8) < of_eight;
    save(medium.cut([&](std::size_t item) { return kept[item]; }));
    ::kill(::getpid(), SIGKILL);
    for (;;) ::pause();
  }
  void save(const SimImage& image) const {
    std::ofstream file(path_, std::ios::binary | std::ios::trunc);
    for (const auto& [name, bytes] : image.files) {
      const auto birth = image.births.find(name);
      file << name << '\n' << (birth == image.births.end() ? 0 : birth->second) << '\n' << bytes->size() << '\n';
      file.write(reinterpret_cast<const char*>(bytes->data()), static_cast<std::streamsize>(bytes->size()));
    }
  }
  [[nodiscard]] SimImage load() const {
    SimImage image;
    std::ifstream file(path_, std::ios::binary);
    for (std::string name; std::getline(file, name);) {
      std::uint64_t birth = 0;
      std::size_t size = 0;
      file >> birth >> size;
      file.get();
      std::vector<std::byte> bytes(size);
      file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
      image.files[name] = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
      if (birth != 0) image.births[name] = birth;
    }
    return image;
  }

  const std::string path_;
  SimVolume volume_;
  std::shared_mutex power_;  // taken alone: there is none any more
};

}  // namespace memlith::core
