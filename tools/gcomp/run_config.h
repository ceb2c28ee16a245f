// The configuration of a command: every option with its value and where that came from.
//
//   {"lr": {"value": 0.001, "from": "command line"}, "schedule": {"value": "cosine", "from": "file"}, "batch": {...}, ...}
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "tools/command_line/arguments.h"

namespace gcomp::tools {

/// A command line with what a configuration file adds.
struct ExpandedCommand {
  std::vector<std::string> arguments;
  std::set<std::string> from_file;  ///< names of the options that the file gave
};

/// Where `arguments`, which begin with the program and the parser's subcommand, have "--config FILE": what FILE gives and they do
/// not is added to them. FILE is an object {"lr": 0.001, ...} by the options' names, or a config.json, of which defaults are left
/// out. Throws UserError for a file that cannot be read, is no such object, or (exit 2) has a name that is no option.
ExpandedCommand with_config_file(std::vector<std::string> arguments, const ArgumentParser& parser);

/// Of what was parsed. How a run is started (--resume, --print-config, ...) is no part of it.
nlohmann::json config_json(const ArgumentParser& parser, const std::set<std::string>& from_file);

/// The command line for a shell, with --resume.
std::string resuming_command(const std::vector<std::string>& arguments);

}  // namespace gcomp::tools
