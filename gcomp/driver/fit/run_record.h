// How a run went, in the files of its folder that are written once: run.json, last.onnx.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "gcomp/fit.h"

namespace gcomp::driver {

/// Throws UserError, beginning with `where`, where the data of a run that goes on have other bytes than those that run.json has of
/// the run before. What it tells by its path alone, such as a folder, is not looked at.
void require_recorded_data(RunDirectory::Impl& run, const Dataset& data, const Dataset* eval, const std::string& where);
/// The device that run.json has of the run before; "" where it has none.
std::string recorded_device(const RunDirectory::Impl& run);

class RunRecord {
 public:
  /// The run begins: config.json, run.json, and the files of metrics are there. Throws UserError where they cannot be written.
  RunRecord(RunDirectory& run, Trainer& trainer, const Dataset& data, const FitOptions& options, const FitPlan& plan);
  ~RunRecord();

  /// Writes the weights, and says what the files lack.
  void end(Trainer& trainer, FitResult& result);
  /// Writes the weights where they are known to be good.
  void fail(Trainer& trainer, std::string_view why, FitFailure& left);

 private:
  /// Gives what the file is called; throws UserError.
  std::string save_last(Trainer& trainer) const;
  void close(nlohmann::json outcome);

  RunDirectory::Impl& run_;
  std::unique_ptr<nlohmann::json> facts_;
};

}  // namespace gcomp::driver
