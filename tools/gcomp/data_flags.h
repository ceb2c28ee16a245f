// Options of the commands for what a model reads (docs/data.md).
#pragma once

#include <string>
#include <vector>

#include "gcomp/driver/opened_data.h"
#include "gcomp/fit.h"
#include "tools/command_line/arguments.h"

namespace gcomp::tools {

struct DataFlags {
  driver::DataRequest request;
  std::string mix;

  /// --data and what says how it is read.
  void add(ArgumentParser& parser);
  /// --eval-data, --split and --eval-augment too.
  void add_for_training(ArgumentParser& parser);
  /// What is evaluated, for messages; "" for nothing.
  std::string evaluated() const;
  /// As it was given, for messages: "a.npz, b.npz".
  std::string text() const;
  /// Adds how rows are drawn. Throws UserError (exit 2) for shares that cannot be read.
  void apply(FitOptions& options) const;
};

}  // namespace gcomp::tools
