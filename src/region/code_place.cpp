#include "region/code_place.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>

namespace memlith::core {

std::string symbol_at(std::uint64_t address) {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(address), &info) == 0 || info.dli_sname == nullptr) return "";
  int error = -1;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &error),
                                                         &std::free);
  return fmt::format("{} + {}", error == 0 ? name.get() : info.dli_sname,
                     address - reinterpret_cast<std::uint64_t>(info.dli_saddr));
}

std::string code_place(std::uint64_t address) {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(address), &info) == 0 || info.dli_fname == nullptr) return "in code of no file";
  const std::string symbol = symbol_at(address);
  if (!symbol.empty()) return fmt::format("in {}, {}", info.dli_fname, symbol);
  return fmt::format("in {} + {:#x}", info.dli_fname, address - reinterpret_cast<std::uint64_t>(info.dli_fbase));
}

}  // namespace memlith::core
