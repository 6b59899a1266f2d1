// The log as an application log of a memlith store, and the homes as files. Floor: postgres.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "memlith/applog.hpp"
#include "page_log.hpp"

namespace memlith_postgres {

class StoredLog final : public BatchLog {
 public:
  // `bytes` is the size of a new one.
  static Result<std::unique_ptr<StoredLog>> open(const std::string& store, std::uint64_t bytes);
  // Large enough that it starts over only now and then, and a batch always finds room behind.
  [[nodiscard]] std::uint64_t checkpoint_bytes() const { return bytes_ / 2; }
  [[nodiscard]] bool is_empty() const;
  Result<void> close();

  [[nodiscard]] bool has_room(std::uint64_t bytes) const override;
  Result<void> append(std::string_view batch) override;
  Result<std::optional<std::string_view>> next() override;
  Result<void> consume() override;

 private:
  StoredLog(memlith::Store store, memlith::AppLog log, std::uint64_t bytes)
      : store_(std::move(store)), log_(std::move(log)), bytes_(bytes) {}

  memlith::Store store_;
  memlith::AppLog log_;
  std::uint64_t bytes_;
  std::uint64_t read_ = 0;  // the number of the newest entry that was read
};

// Files below the data directory.
class FileHomes final : public Homes {
 public:
  explicit FileHomes(std::string data) : data_(std::move(data)) {}
  Result<std::unique_ptr<HomeFile>> open(const std::string& path) override;
  Result<void> flush_folder_of(const std::string& path) override;

 private:
  const std::string data_;
};

}  // namespace memlith_postgres
