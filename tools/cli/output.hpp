// The tool's output: lines of text or of JSON on standard output, failures, and the form of numbers in text.
//
// In JSON form every line is one object, and so is a failure. In text a failure goes to standard error.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "failure.hpp"

namespace memlith::tool {

enum class Format : std::uint8_t { text, json };

using Json = nlohmann::ordered_json;  // fields stay in the order they are named in

// Each writes one line and flushes it, so that a reader at the other end of a pipe sees results as they come.
void write_line(std::string_view line);
void write_json(const Json& object);

// True once standard output took no more: its reader went away, or the disk is full.
[[nodiscard]] bool output_failed();

// Shows the failure in the given form and returns the exit code that goes with it.
int report_failure(const Failure& failure, Format format);

// Ends a command: shows its failure, or that standard output did not take everything.
[[nodiscard]] int exit_code_of(const MaybeFailure& failure, Format format);

// The body of main(). The standard library may throw, bad_alloc above all; the tools themselves throw nothing.
[[nodiscard]] int run_program(const char* name, int argument_count, char** arguments, int (*run)(int, char**));

// "64 MiB", "1.5 GiB", "100 B".
[[nodiscard]] std::string human_bytes(std::uint64_t bytes);

// Names come from a disk: bytes that a terminal might obey, and what is not UTF-8, are shown as \xNN.
[[nodiscard]] std::string printable(std::string_view text);

[[nodiscard]] std::string kernel_release();  // as `uname -r`
[[nodiscard]] std::string utc_now();         // "2025-01-31 12:00 UTC"

}  // namespace memlith::tool
