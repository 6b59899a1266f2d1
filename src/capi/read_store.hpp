// Opening a store to look at what is durable, also while a process writes to it. Floor: capi.
#pragma once

#include <memory>
#include <utility>

#include "capi/handles.hpp"
#include "region/session.hpp"

namespace memlith::core {

inline Result<std::unique_ptr<Session>> open_to_read(const char* path) {
  MEMLITH_TRY(need(path, "path"));
  StoreOptions options;
  options.kind = kind_at(path);
  options.read_only = true;
  MEMLITH_TRY_ASSIGN(Place place, place_of_store(path, options.kind));
  // A read-only opening reads and checks every structure, and keeps the result in memory.
  auto opened = Session::open(std::move(place), options);
  if (opened.ok() || opened.error().category != Errc::busy) return opened;
  // A process has the store open for writing: what it has made durable is checked.
  options.follow = true;
  MEMLITH_TRY_ASSIGN(Place beside, place_of_store(path, options.kind));
  auto followed = Session::open(std::move(beside), options);
  if (followed.ok() || followed.error().category != Errc::unsupported) return followed;
  options.follow = false;
  MEMLITH_TRY_ASSIGN(Place again, place_of_store(path, options.kind));
  return Session::open(std::move(again), std::move(options));
}

}  // namespace memlith::core
