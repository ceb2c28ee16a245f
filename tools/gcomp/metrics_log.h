// The --metrics file of a run.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "runtime/metrics.h"
#include "tools/gcomp/console.h"

namespace gcomp::tools {

/// A line that cannot be written ends the file after the last whole one, not the run: that is said once, and failure() keeps it for
/// the end.
class MetricsLog {
 public:
  /// With "" nothing is written. Throws UserError where the file cannot be opened.
  MetricsLog(const std::string& path, const Console& console);

  void write(std::span<const runtime::Metric> metrics);
  /// Why the file lacks lines; "" where it does not.
  const std::string& failure() const { return failure_; }

 private:
  const Console& console_;
  std::unique_ptr<runtime::MetricsWriter> file_;
  std::string failure_;
};

}  // namespace gcomp::tools
