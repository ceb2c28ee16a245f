#include "tools/gcomp/metrics_log.h"

#include "ir/base/error.h"

namespace gcomp::tools {

MetricsLog::MetricsLog(const std::string& path, const Console& console) : console_(console) {
  if (!path.empty()) file_ = std::make_unique<runtime::MetricsWriter>(path);
}

void MetricsLog::write(std::span<const runtime::Metric> metrics) {
  if (!file_) return;
  try {
    file_->write(metrics);
  } catch (const UserError& error) {
    failure_ = error.what();
    file_.reset();
    console_.warn(concat(failure_, "; the run goes on without --metrics"));
  }
}

}  // namespace gcomp::tools
