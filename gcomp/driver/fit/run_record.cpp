#include "gcomp/driver/fit/run_record.h"

#include <chrono>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "gcomp/driver/fit/run_directory.h"
#include "gcomp/driver/training.h"
#include "gcomp/version.h"
#include "ir/base/error.h"

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
json digest_of(RunDirectory::Impl& run, const std::string& path) {
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) return {{"path", path}};
  if (!std::filesystem::is_regular_file(path, none)) return {};
  const std::uintmax_t bytes = std::filesystem::file_size(path, none);
  if (bytes > kMostHashed) return {{"path", path}, {"bytes", bytes}};
  return {{"path", path}, {"sha256", run.sha256_of(path)}};
}

json model_facts(RunDirectory::Impl& run, const Trainer& trainer) {
  json files = json::array();
  for (const frontend::FileStamp& file : model_files(trainer)) files.push_back(digest_of(run, file.path));
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

/// What run.json has of the run before; an empty object where it cannot be read.
json recorded(const RunDirectory::Impl& run) {
  std::ifstream file(run.file(kRunName));
  json facts = json::parse(file, nullptr, false);
  return facts.is_object() ? facts : json::object();
}

}  // namespace

void require_recorded_data(RunDirectory::Impl& run, const Dataset& data, const Dataset* eval, const std::string& where) {
  const json before = recorded(run);
  const auto require = [&](const char* fact, const char* flag, const Dataset& read) {
    if (!before.contains(fact) || !before[fact].is_object()) return;
    const json now = digest_of(run, read.source());
    for (const auto& [field, what] : {std::pair("sha256", "SHA-256"), std::pair("bytes", "size in bytes")})
      if (now.is_object() && now.contains(field) && before[fact].contains(field) && now[field] != before[fact][field])
        throw UserError(concat(where, flag, " '", read.source(), "' is not what the run began with: its ", what, " was ",
                               before[fact][field].dump(), " and is ", now[field].dump(),
                               "; give the file as it was, or start another run, with --init for the weights of this one"));
  };
  require("data", "--data", data);
  if (eval) require("eval_data", "--eval-data", *eval);
}

std::string recorded_device(const RunDirectory::Impl& run) {
  const json before = recorded(run);
  return before.contains("device") && before["device"].is_string() ? before["device"].get<std::string>() : "";
}

RunRecord::RunRecord(RunDirectory& run, Trainer& trainer, const Dataset& data, const FitOptions& options, const FitPlan& plan)
    : run_(run.impl()), facts_(std::make_unique<json>()) {
  if (run_.config.empty()) run_.config = config_of(options);
  run_.begin(plan.position.steps);
  *facts_ = {{"gcomp", version()},
             {"begun", time_now()},
             {"device", trainer.device()},
             {"processors", std::thread::hardware_concurrency()},
             {"seed", plan.position.seed},
             {"model", model_facts(run_, trainer)},
             {"data", digest_of(run_, data.source())},
             {"rows", data.rows()},
             {"steps", plan.steps},
             {"batch", plan.batch}};
  if (options.eval) (*facts_)["eval_data"] = digest_of(run_, options.eval->source());
  if (plan.done > 0) (*facts_)["goes_on_after"] = plan.done;
  (*facts_)["state"] = "running";
  run_.write(kRunName, *facts_);
}

RunRecord::~RunRecord() = default;

std::string RunRecord::save_last(Trainer& trainer) const {
  const std::string last = run_.file(concat("last", run_.ending(trainer))).string();
  trainer.save(last);
  return last;
}

void RunRecord::end(Trainer& trainer, FitResult& result) {
  try {
    result.last = save_last(trainer);
  } catch (const Error& error) { result.last_failure = error.what(); }
  json outcome{{"state", name_of(result.end)}, {"steps_done", trainer.data_position().steps}, {"loss", result.loss},
               {"seconds", result.seconds},    {"weights_sha256", trainer.weights_digest()},  {"skipped", result.skipped}};
  if (result.best) outcome["best"] = {{"value", *result.best}, {"step", result.best_step}};
  close(std::move(outcome));
  const std::vector<std::string> failures = run_.all_failures();
  result.tolerated.insert(result.tolerated.end(), failures.begin(), failures.end());
}

void RunRecord::fail(Trainer& trainer, std::string_view why, FitFailure& left) {
  json outcome{{"state", "failed"}, {"error", why}};
  if (left.stands_after) outcome["steps_done"] = *left.stands_after;
  if (left.has_trained()) try {
      left.last = save_last(trainer);
    } catch (const std::exception& error) { left.tolerated.emplace_back(error.what()); }
  close(std::move(outcome));
  const std::vector<std::string> failures = run_.all_failures();
  left.tolerated.insert(left.tolerated.end(), failures.begin(), failures.end());
}

void RunRecord::close(json outcome) {
  facts_->update(outcome);
  (*facts_)["ended"] = time_now();
  try {
    run_.write(kRunName, *facts_);
  } catch (const UserError& error) { run_.failures.emplace_back(error.what()); }
}

}  // namespace gcomp::driver
