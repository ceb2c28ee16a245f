#include "gcomp/driver/fit/run_record.h"

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <thread>

#include "gcomp/driver/fit/run_directory.h"
#include "gcomp/driver/training.h"
#include "gcomp/version.h"
#include "ir/base/error.h"
#include "runtime/files/sha256.h"

namespace gcomp::driver {
namespace {

using nlohmann::json;

/// "2026-11-23T09:41:07Z".
std::string time_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm fields{};
  gmtime_r(&now, &fields);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &fields);
  return text;
}

/// Reading more than this would keep the first step waiting for seconds.
constexpr std::uintmax_t kMostHashed = std::uintmax_t{1} << 30;

/// Null for what is no file, such as data that a program makes. A larger file is told by its size, a folder by its path.
json digest_of(const std::string& path) {
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) return {{"path", path}};
  if (!std::filesystem::is_regular_file(path, none)) return {};
  const std::uintmax_t bytes = std::filesystem::file_size(path, none);
  if (bytes > kMostHashed) return {{"path", path}, {"bytes", bytes}};
  return {{"path", path}, {"sha256", runtime::sha256_of_file(path)}};
}

json model_facts(const Trainer& trainer) {
  json files = json::array();
  for (const frontend::FileStamp& file : model_files(trainer)) files.push_back(digest_of(file.path));
  return files;
}

std::string_view name_of(FitEnd end) {
  switch (end) {
    case FitEnd::finished: return "finished";
    case FitEnd::cancelled: return "interrupted";
    case FitEnd::early_stop: return "stopped early";
    case FitEnd::max_time: return "out of time";
  }
  return "";
}

}  // namespace

RunRecord::RunRecord(RunDirectory& run, Trainer& trainer, const Dataset& data, const FitOptions& options, const FitPlan& plan)
    : run_(run.impl()), facts_(std::make_unique<json>()) {
  if (run_.config.empty()) run_.config = config_of(options);
  run_.begin(plan.position.steps);
  *facts_ = {{"gcomp", version()},
             {"begun", time_now()},
             {"device", trainer.device()},
             {"processors", std::thread::hardware_concurrency()},
             {"seed", plan.position.seed},
             {"model", model_facts(trainer)},
             {"data", digest_of(data.source())},
             {"rows", data.rows()},
             {"steps", plan.steps},
             {"batch", plan.batch}};
  if (options.eval) (*facts_)["eval_data"] = digest_of(options.eval->source());
  if (plan.done > 0) (*facts_)["goes_on_after"] = plan.done;
  (*facts_)["state"] = "running";
  run_.write("run.json", *facts_);
}

RunRecord::~RunRecord() = default;

void RunRecord::end(Trainer& trainer, FitResult& result) {
  const std::string last = run_.file(concat("last", run_.ending(trainer))).string();
  try {
    trainer.save(last);
    result.last = last;
  } catch (const UserError& error) { result.last_failure = error.what(); }
  json outcome{{"state", name_of(result.end)}, {"steps_done", trainer.data_position().steps}, {"loss", result.loss},
               {"seconds", result.seconds},    {"weights_sha256", trainer.weights_digest()},  {"skipped", result.skipped}};
  if (result.best) outcome["best"] = {{"value", *result.best}, {"step", result.best_step}};
  close(std::move(outcome));
  const std::vector<std::string> failures = run_.all_failures();
  result.tolerated.insert(result.tolerated.end(), failures.begin(), failures.end());
}

void RunRecord::fail(std::string_view why) { close({{"state", "failed"}, {"error", why}}); }

void RunRecord::close(json outcome) {
  facts_->update(outcome);
  (*facts_)["ended"] = time_now();
  try {
    run_.write("run.json", *facts_);
  } catch (const UserError& error) { run_.failures.emplace_back(error.what()); }
}

}  // namespace gcomp::driver
