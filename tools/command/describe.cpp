// memlith help --json: the commands, their arguments and options, as data. tools/pages.py makes the manual pages and
// the completions of shells of them, so that what a page says is what the command takes.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "commands.hpp"

namespace memlith::tool {

namespace {

constexpr int kRepeats = 2;  // more than one word

Json argument_of(const CLI::Option& option) {
  return {{"name", option.get_name(true)},
          {"description", option.get_description()},
          {"required", option.get_required()},
          {"repeats", option.get_items_expected_max() >= kRepeats}};
}

Json option_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  const bool takes_value = option.get_items_expected_max() > 0;
  const std::string& initial = option.get_default_str();
  return {{"names", names},
          {"value", takes_value ? Json(option.get_type_name()) : Json(nullptr)},
          {"default", takes_value && !initial.empty() ? Json(initial) : Json(nullptr)},
          {"description", option.get_description()},
          {"repeats", option.get_items_expected_max() >= kRepeats}};
}

}  // namespace

void describe_command(const CLI::App& app, const std::string& name) {
  Json arguments = Json::array();
  Json options = Json::array();
  for (const CLI::Option* each : app.get_options()) {
    (each->get_positional() ? arguments : options)
        .push_back(each->get_positional() ? argument_of(*each) : option_of(*each));
  }
  Json commands = Json::array();
  const std::vector<const CLI::App*> below = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* each : below) commands.push_back(each->get_name());
  write_json({{"command", name},
              {"description", app.get_description()},
              {"arguments", arguments},
              {"options", options},
              {"commands", commands}});
  for (const CLI::App* each : below) describe_command(*each, (name.empty() ? "" : name + " ") + each->get_name());
}

}  // namespace memlith::tool
