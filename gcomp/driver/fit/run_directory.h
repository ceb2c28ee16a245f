// What a gcomp::RunDirectory holds, and what fit() writes into it.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
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
  std::string set_aside;              // the folder that takes an earlier run's files when this one begins; "" for none
  std::optional<std::ofstream> log_file;
  std::unique_ptr<runtime::MetricsWriter> metrics;
  std::optional<driver::MetricsTable> table;
  std::optional<driver::EventFile> events;

  Impl(const Path& folder, EarlierRun earlier);
  ~Impl();

  std::filesystem::path file(std::string_view name) const { return std::filesystem::path(path) / name; }
  std::filesystem::path checkpoints() const { return file("checkpoints"); }
  /// An earlier run that left nothing to go on from keeps its files, in a folder of their own from begin() on. Gives that folder;
  /// "" where there is nothing that a new run would replace.
  std::string keep_earlier();
  /// Each file is read once.
  const std::string& sha256_of(const std::string& path);
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
  void move_earlier();
  /// Does `work`, which writes metrics; where that fails, what the run trains matters more.
  template <class Work>
  void tolerating(const Work& work);

  std::map<std::string, std::string> digests_;  // SHA-256 by path
};

namespace driver {

inline constexpr std::string_view kRunName = "run.json";

/// What a run makes in `folder` that `path` is, or lies in, whatever links lead there: "last.onnx", "checkpoints", or "." for the
/// folder itself; "" for none. Neither needs to be there.
std::string name_in_run(const std::filesystem::path& folder, const std::filesystem::path& path);

/// Throws UserError (exit 2) where a run in `folder` would replace or remove the file or folder at `path`, which it reads as its
/// `role`: "model", "data".
void protect_from_run(const std::filesystem::path& folder, std::string_view role, const std::filesystem::path& path);

/// What numbers of a run's data stand for, as GraphOptions::number_names has it: from what lies beside the run's models,
/// classes.json (a list), vocab.json and columns.json (data::text_of(KeptColumns)), where `folder` is a run's; "" where nothing
/// does. Throws UserError naming the file.
std::string number_names_of_run(const std::filesystem::path& folder);

/// What config.json holds of a program that gave no other: its FitOptions.
std::string config_of(const FitOptions& options);

}  // namespace driver
}  // namespace gcomp
