// A kv store of memlith in a store of its own, as the sides of this benchmark use it. Floor: kvcalls-bench.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cli/failure.hpp"
#include "memlith/kv.hpp"

namespace memlith::tool {

template <class T>
MaybeFailure kv_failure(const memlith::Result<T>& result, std::string_view doing) {
  if (result) return {};
  return library_failure(result.error().code(), doing);
}

struct OpenedKv {
  std::optional<Store> store;  // closed after the kv store
  std::optional<Kv> kv;

  [[nodiscard]] MaybeFailure open(const std::string& path) {
    auto opened = Store::open(path, {.create = true});
    if (MaybeFailure failure = kv_failure(opened, "opening a store")) return failure;
    store.emplace(std::move(*opened));
    auto made = Kv::open(*store, "kv", {.create = true});
    if (MaybeFailure failure = kv_failure(made, "opening a kv store")) return failure;
    kv.emplace(std::move(*made));
    return {};
  }
};

}  // namespace memlith::tool
