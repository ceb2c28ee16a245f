// Options of the commands for what a model reads (docs/data.md).
#pragma once

#include <string>
#include <vector>

#include "gcomp/driver/opened_data.h"
#include "tools/command_line/arguments.h"

namespace gcomp::tools {

struct DataFlags {
  driver::DataRequest request;

  /// --data and what says how it is read.
  void add(ArgumentParser& parser);
  /// --eval-data, --split and --eval-augment too.
  void add_for_training(ArgumentParser& parser);
  /// What is evaluated, for messages; "" for nothing.
  std::string evaluated() const;
  const std::string& text() const { return request.data; }
};

}  // namespace gcomp::tools
