// The homes as files. Floor: postgres.
#pragma once

#include <memory>
#include <string>

#include "page_log.hpp"

namespace memlith_postgres {

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
