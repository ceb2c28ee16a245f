// How a run went, in the files of its folder that are written once: run.json, last.onnx.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "gcomp/fit.h"

namespace gcomp::driver {

class RunRecord {
 public:
  /// The run begins: config.json, run.json, and the files of metrics are there. Throws UserError where they cannot be written.
  RunRecord(RunDirectory& run, Trainer& trainer, const Dataset& data, const FitOptions& options, const FitPlan& plan);
  ~RunRecord();

  /// Writes the weights, and says what the files lack.
  void end(Trainer& trainer, FitResult& result);
  void fail(std::string_view why);

 private:
  void close(nlohmann::json outcome);

  RunDirectory::Impl& run_;
  std::unique_ptr<nlohmann::json> facts_;
};

}  // namespace gcomp::driver
