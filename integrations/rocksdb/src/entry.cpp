// The calls of programs, and those that RocksDB finds when it loads memlith_rocksdb.so. Floor: rocksdb.
#include <rocksdb/convenience.h>
#include <rocksdb/file_system.h>
#include <rocksdb/utilities/object_registry.h>

#include <memory>
#include <string>

#include "file_system.hpp"
#include "memlith/rocksdb.hpp"

rocksdb::Status memlith::NewRocksdbFileSystem(const std::shared_ptr<rocksdb::FileSystem>& base,
                                              const RocksdbOptions& options,
                                              std::shared_ptr<rocksdb::FileSystem>* result) {
  auto file_system = std::make_shared<memlith_rocksdb::FileSystem>(base, options);
  const rocksdb::Status status = file_system->PrepareOptions(rocksdb::ConfigOptions());
  if (status.ok()) *result = std::move(file_system);
  return status;
}

namespace {

[[gnu::constructor]] void register_file_system() {
  using rocksdb::FileSystem;
  using rocksdb::ObjectLibrary;
  ObjectLibrary::Default()
      ->AddFactory<FileSystem>(ObjectLibrary::PatternEntry("memlith", true).AddSeparator("://", false),
                               [](const std::string&, std::unique_ptr<FileSystem>* guard, std::string*) {
                                 guard->reset(new memlith_rocksdb::FileSystem(FileSystem::Default(), {}));
                                 return guard->get();
                               });
}

}  // namespace
