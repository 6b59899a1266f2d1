#include "doctor.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <charconv>

#include "cli/output.hpp"
#include "commands.hpp"
#include "sqlite_head.hpp"

namespace memlith::tool {

namespace {

std::string_view word_for(Reach reach) {
  switch (reach) {
    case Reach::yes: return "yes";
    case Reach::no: return "no";
    default: return "unknown";
  }
}

Result<std::vector<Finding>> examine(const std::string& target) {
  struct stat status{};
  const bool is_file = ::stat(target.c_str(), &status) == 0;
  int number = 0;
  const auto [end, problem] = std::from_chars(target.data(), target.data() + target.size(), number);
  if (!is_file && problem == std::errc{} && end == target.data() + target.size()) return examine_process(number);
  if (is_file && S_ISREG(status.st_mode)) {
    Result<SqliteLook> look = look_at_sqlite(target);
    if (look.ok() && !look->is(MEMLITH_SQLITE_FOREIGN)) return examine_database(target);
  }
  Result<std::string> program = resolve_program(target);
  if (!program.ok()) return program.failure();
  return std::vector<Finding>{examine_program(*program, *program)};
}

}  // namespace

MaybeFailure run_sqlite_doctor(const SqliteDoctorArguments& arguments) {
  Result<std::vector<Finding>> findings = examine(arguments.target);
  if (!findings.ok()) return findings.failure();
  for (const Finding& each : *findings) {
    if (arguments.format == Format::json) {
      std::string advice;
      for (const std::string& line : each.advice) advice += (advice.empty() ? "" : "\n") + line;
      write_json({{"subject", each.subject},
                  {"reaches", word_for(each.reach)},
                  {"finding", each.text},
                  {"advice", advice}});
      continue;
    }
    write_line(fmt::format("{}: {} {}", each.reach == Reach::yes ? "ok" : word_for(each.reach), printable(each.subject),
                           printable(each.text)));
    for (const std::string& line : each.advice) write_line("    " + printable(line));
  }
  return {};
}

}  // namespace memlith::tool
