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
  /// --eval-data too.
  void add_for_training(ArgumentParser& parser);
  const std::string& text() const { return request.data; }
};

}  // namespace gcomp::tools
