// What a gcomp::RunDirectory holds, and what fit() writes into it.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/driver/fit/event_file.h"
#include "gcomp/driver/fit/metrics_table.h"
#include "gcomp/fit.h"
#include "gcomp/run_directory.h"
#include "runtime/files/descriptor.h"
#include "runtime/metrics.h"

namespace gcomp {

struct RunDirectory::Impl {
  std::string path;
  EarlierRun earlier;
  bool made = false;     // the folder, by us
  bool has_run = false;  // there was one
  bool begun = false;
  runtime::Descriptor lock;
  std::string config;
  std::string log;                    // lines from before the run began
  std::vector<std::string> failures;  // of files of the run: what could not be written
  std::string best_failure;           // why the best is not in its file; "" where it is
  bool metrics_end = false;           // before the run, since a line could not be written
  std::optional<std::ofstream> log_file;
  std::unique_ptr<runtime::MetricsWriter> metrics;
  std::optional<driver::MetricsTable> table;
  std::optional<driver::EventFile> events;

  Impl(const Path& folder, EarlierRun earlier);
  ~Impl();

  std::filesystem::path file(std::string_view name) const { return std::filesystem::path(path) / name; }
  std::filesystem::path checkpoints() const { return file("checkpoints"); }
  /// The files are opened; those of an earlier run removed, or kept up to `steps` steps where it goes on.
  void begin(std::int64_t steps);
  void write(std::string_view name, const nlohmann::json& content) const;
  /// ".onnx", or ".gcx" where the model came from no ONNX file.
  static std::string ending(const Trainer& trainer);
  std::vector<std::string> all_failures() const;
  /// What evaluations take, as best.onnx.
  void save_best(Trainer& trainer);
  void write_step(const FitStep& step);
  void write_evaluation(const FitEvaluation& evaluation, std::string_view source);

 private:
  void lock_folder();
  void look();
  void remove_run();
  /// Does `work`, which writes metrics; where that fails, what the run trains matters more.
  template <class Work>
  void tolerating(const Work& work);
};

namespace driver {

/// What config.json holds of a program that gave no other: its FitOptions.
std::string config_of(const FitOptions& options);

}  // namespace driver
}  // namespace gcomp
