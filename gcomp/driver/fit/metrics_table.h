// metrics.csv: a column for each number that a run tells, a row for each step and each evaluation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/files/descriptor.h"
#include "runtime/metrics.h"

namespace gcomp::driver {

/// The first column is "step". A number of a new name adds a column behind the others, and the file is written anew. A list has a
/// column for each number, "lr_groups/0"; matrices and text have none.
class MetricsTable {
 public:
  /// Goes on behind the rows of up to `steps` steps, where the file is there. Throws UserError with the system's reason.
  MetricsTable(const std::filesystem::path& path, std::int64_t steps);

  void write(std::span<const runtime::Metric> metrics);

 private:
  void open();
  using Cells = std::vector<std::pair<std::string, std::string>>;  // column and number

  void add_columns(const Cells& cells);
  void append(const std::string& text);

  std::filesystem::path path_;
  runtime::Descriptor descriptor_;
  std::vector<std::string> columns_;
};

}  // namespace gcomp::driver
