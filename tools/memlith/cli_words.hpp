// Words for describing a command line.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace memlith::tool {

inline CLI::Range between(std::uint64_t low, std::uint64_t high) { return {low, high}; }

// An option that takes a number, or several: `target` is a number or a vector of them, and holds what is usual.
template <class Target>
CLI::Option* add_number(CLI::App* command, const std::string& name, Target& target, std::uint64_t low,
                        std::uint64_t high, const std::string& what) {
  return command->add_option(name, target, what)->check(between(low, high))->capture_default_str();
}

}  // namespace memlith::tool
