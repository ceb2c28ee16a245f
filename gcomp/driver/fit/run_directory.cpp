#include "gcomp/driver/fit/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "data/number_names.h"
#include "gcomp/driver/checkpoint_folder.h"
#include "gcomp/driver/fit/metric_lines.h"
#include "gcomp/driver/training.h"
#include "ir/base/error.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/sha256.h"

namespace gcomp {
namespace fs = std::filesystem;
namespace {

using driver::kRunName;
constexpr std::string_view kLockName = "lock", kCheckpointsName = "checkpoints", kEarlierStart = "earlier-";
/// What only a run has: a folder with neither of them holds none.
constexpr std::string_view kConfigName = "config.json", kMetricsName = "metrics.jsonl";

/// Who starts the run keeps there what numbers of its data stand for, before it begins.
constexpr std::string_view kVocabularyName = "vocab.json", kClassesName = "classes.json", kColumnsName = "columns.json";
constexpr std::uintmax_t kMostNames = std::uintmax_t{1} << 28;  // bytes of each
bool is_of_data(const std::string& name) { return name == kVocabularyName || name == kClassesName || name == kColumnsName; }

/// What a run makes in its folder.
bool is_of_run(const std::string& name) {
  constexpr std::string_view kNames[] = {kConfigName, kRunName,         kMetricsName, "metrics.csv", "log.txt",
                                         "last.onnx", "last.onnx.data", "last.gcx",   "best.onnx",   "best.onnx.data",
                                         "best.gcx",  kCheckpointsName, kLockName};
  const std::string_view after_earlier = name.starts_with(kEarlierStart) ? std::string_view(name).substr(kEarlierStart.size()) : "";
  const bool is_earlier = !after_earlier.empty() && after_earlier.find_first_not_of("0123456789") == after_earlier.npos;
  return std::ranges::count(kNames, name) > 0 || name.starts_with("events.out.tfevents.") || is_earlier ||
         runtime::is_temporary_name(name);
}

/// What of an earlier run a new one goes on with or leaves alone: its checkpoints are named by their steps.
bool stays_in_place(const std::string& name) {
  return name == kLockName || name == kCheckpointsName || name.starts_with(kEarlierStart);
}

[[noreturn]] void fail(const std::string& what, const fs::path& path, int error) {
  throw UserError(concat(what, " '", path.string(), "': ", std::generic_category().message(error)));
}

/// The bytes of the lines of up to `steps` steps. Lines are in the order of their steps.
std::uintmax_t bytes_up_to(const fs::path& metrics, std::int64_t steps) {
  std::ifstream in(metrics, std::ios::binary);
  std::uintmax_t bytes = 0;
  for (std::string line; std::getline(in, line) && !in.eof(); bytes += line.size() + 1) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object() || object.value("step", std::int64_t{0}) > steps) break;
  }
  return bytes;
}

}  // namespace

RunDirectory::Impl::Impl(const Path& folder, EarlierRun of_earlier) : path(folder.string()), earlier(of_earlier) {
  std::error_code error;
  made = fs::create_directories(path, error);
  if (error) fail("cannot make the run directory", path, error.value());
  try {
    lock_folder();
    look();
  } catch (...) {
    if (made) fs::remove_all(path, error);
    throw;
  }
}

RunDirectory::Impl::~Impl() {
  std::error_code ignored;
  if (begun) return;
  if (!has_run) fs::remove(file(kLockName), ignored);
  if (made) fs::remove(path, ignored);
}

/// The kernel lets go of it with the process.
void RunDirectory::Impl::lock_folder() {
  lock = runtime::Descriptor(::open(file(kLockName).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!lock) fail("cannot write", file(kLockName), errno);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return;
  made = false;  // it is theirs
  has_run = true;
  if (errno != EWOULDBLOCK) fail("cannot lock", file(kLockName), errno);
  throw UserError(concat("--run-dir ", path, ": another process trains there; give each run a folder of its own"));
}

void RunDirectory::Impl::look() {
  std::string foreign;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    has_run |= name == kConfigName || name == kRunName || name == kCheckpointsName;
    if (!is_of_run(name) && !is_of_data(name)) foreign = name;
  }
  if (!has_run && !foreign.empty())
    throw UserError(concat("--run-dir ", path, ": it holds other files, such as '", foreign, "', and no run; give an empty folder"),
                    ExitCode::usage);
  if (has_run && earlier == EarlierRun::refuse)
    throw UserError(concat("--run-dir ", path, ": there is a run already; --resume goes on with it, --overwrite starts anew"),
                    ExitCode::usage);
}

/// Files of others stay.
void RunDirectory::Impl::remove_run() {
  std::error_code error;
  std::vector<fs::path> removed;
  for (const fs::directory_entry& entry : fs::directory_iterator(path))
    if (const std::string name = entry.path().filename().string(); is_of_run(name) && name != kLockName)
      removed.push_back(entry.path());
  for (const fs::path& one : removed) {
    fs::remove_all(one, error);
    if (error) fail("cannot remove", one, error.value());
  }
}

std::string RunDirectory::Impl::keep_earlier() {
  constexpr std::string_view kOfWorth[] = {kMetricsName, "last.onnx", "last.gcx", "best.onnx", "best.gcx"};
  const auto holds = [&](std::string_view name) {
    std::error_code missing;
    const std::uintmax_t bytes = fs::file_size(file(name), missing);
    return !missing && bytes > 0;
  };
  if (std::ranges::none_of(kOfWorth, holds)) return "";
  std::error_code none;
  for (int number = 1; set_aside.empty() || fs::exists(set_aside, none); ++number)
    set_aside = file(concat(kEarlierStart, number)).string();
  return set_aside;
}

void RunDirectory::Impl::move_earlier() {
  std::error_code error;
  if (!fs::create_directory(set_aside, error) || error) fail("cannot make", set_aside, error.value());
  std::vector<fs::path> moved;
  for (const fs::directory_entry& entry : fs::directory_iterator(path))
    if (const std::string name = entry.path().filename().string(); is_of_run(name) && !stays_in_place(name))
      moved.push_back(entry.path());
  for (const fs::path& one : moved) {
    fs::rename(one, fs::path(set_aside) / one.filename(), error);
    if (error) fail("cannot move", one, error.value());
  }
}

const std::string& RunDirectory::Impl::sha256_of(const std::string& of) {
  const auto found = digests_.find(of);
  return found != digests_.end() ? found->second : digests_.emplace(of, runtime::sha256_of_file(of)).first->second;
}

void RunDirectory::Impl::begin(std::int64_t steps) {
  if (earlier != EarlierRun::resume) remove_run();
  else if (!set_aside.empty()) move_earlier();
  begun = true;
  const fs::path lines = file(kMetricsName);
  std::error_code error;
  if (fs::exists(lines)) fs::resize_file(lines, bytes_up_to(lines, steps), error);
  if (error) fail("cannot write", lines, error.value());
  metrics = std::make_unique<runtime::MetricsWriter>(lines, runtime::MetricsWriter::Opening::append);
  table.emplace(file("metrics.csv"), steps);
  events.emplace(path, steps + 1);
  log_file.emplace(file("log.txt"), std::ios::app);
  *log_file << log << std::flush;
  log.clear();
  write(kConfigName, nlohmann::json::parse(config.empty() ? "{}" : config));
}

void RunDirectory::Impl::write(std::string_view name, const nlohmann::json& content) const {
  const std::string text = content.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  runtime::write_file(file(name), std::as_bytes(std::span(text)));
}

template <class Work>
void RunDirectory::Impl::tolerating(const Work& work) {
  if (metrics_end) return;
  try {
    work();
  } catch (const UserError& error) {
    failures.push_back(concat(error.what(), "; the metrics in '", path, "' end before the run"));
    metrics_end = true;
  }
}

std::string RunDirectory::Impl::ending(const Trainer& trainer) { return driver::comes_from_onnx(trainer) ? ".onnx" : ".gcx"; }

void RunDirectory::Impl::save_best(Trainer& trainer) {
  const std::string name = concat("best", ending(trainer));
  best_failure.clear();
  try {
    trainer.save(file(name), name.ends_with(".gcx") ? Weights::trained : trainer.weights());
  } catch (const UserError& error) { best_failure = concat(error.what(), "; the best is not kept"); }
}

std::vector<std::string> RunDirectory::Impl::all_failures() const {
  std::vector<std::string> all = failures;
  if (!best_failure.empty()) all.push_back(best_failure);
  return all;
}

void RunDirectory::Impl::write_step(const FitStep& step) {
  tolerating([&] {
    std::vector<runtime::Metric> fields = driver::metrics_of_step(step);
    fields.emplace_back("rows_per_second", step.rows_per_second);
    fields.emplace_back("data_wait", step.data_wait);
    metrics->write(fields);
    table->write(fields);
    std::vector<std::string> tags;
    std::vector<driver::EventFile::Scalar> scalars;
    tags.reserve(fields.size());
    for (const auto& [name, value] : fields)
      if (const double* number = std::get_if<double>(&value))
        scalars.emplace_back(tags.emplace_back(concat("train/", name)), *number);
    std::vector<std::string> groups;
    groups.reserve(step.group_rates.size());
    for (const double rate : step.group_rates)
      scalars.emplace_back(groups.emplace_back(concat("train/lr_groups/", groups.size())), rate);
    events->write(step.step, scalars);
  });
}

void RunDirectory::Impl::write_evaluation(const FitEvaluation& evaluation, std::string_view source) {
  tolerating([&] {
    std::vector<runtime::Metric> fields = driver::metrics_of_evaluation(evaluation, source);
    fields.insert(fields.begin(), {"step", evaluation.step});
    metrics->write(fields);
    std::vector<std::string> names, tags;
    names.reserve(fields.size()), tags.reserve(fields.size());
    std::vector<runtime::Metric> row{{"step", evaluation.step}, {"epoch", evaluation.epoch}};
    std::vector<driver::EventFile::Scalar> scalars;
    for (const auto& [name, value] : fields)
      if (const double* number = std::get_if<double>(&value)) {
        row.emplace_back(names.emplace_back(concat("eval_", name)), *number);
        scalars.emplace_back(tags.emplace_back(concat("eval/", name)), *number);
      }
    table->write(row);
    events->write(evaluation.step, scalars);
  });
}

std::string driver::name_in_run(const fs::path& folder, const fs::path& path) {
  std::error_code error;
  const auto absolute = [&](const fs::path& given) { return fs::weakly_canonical(fs::absolute(given, error), error); };
  const fs::path home = absolute(folder);
  // A link is in the folder by its own name, and by that of what it leads to.
  for (const fs::path& place :
       {absolute(path.has_filename() ? path.parent_path() / "." : path) / path.filename(), absolute(path)}) {
    const fs::path within = place.lexically_normal().lexically_relative(home);
    if (within.empty()) continue;
    const std::string first = within.begin()->string();
    if (first == "." || is_of_run(first) || is_of_data(first)) return first;
  }
  return "";
}

std::string driver::number_names_of_run(const fs::path& folder) {
  const auto text_in = [&](std::string_view name) -> std::string {
    if (!fs::is_regular_file(folder / name)) return "";
    const std::vector<std::byte> bytes = runtime::read_file(folder / name, kMostNames);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  };
  if (!fs::is_regular_file(folder / kRunName)) return "";
  data::NumberNames names{.source = folder.string(), .classes = {}, .vocabulary = text_in(kVocabularyName)};
  if (const std::string classes = text_in(kClassesName); !classes.empty()) try {
      names.classes[""] = nlohmann::json::parse(classes).get<std::vector<std::string>>();
    } catch (const nlohmann::json::exception& error) {
      throw UserError(concat("'", (folder / kClassesName).string(), "': wanted a list of names: ", error.what()));
    }
  if (const std::string columns = text_in(kColumnsName); !columns.empty()) try {
      names.columns = data::parse_columns(columns);
    } catch (const UserError& error) { throw UserError(concat("'", (folder / kColumnsName).string(), "': ", error.what())); }
  return data::text_of(names);
}

void driver::protect_from_run(const fs::path& folder, std::string_view role, const fs::path& path) {
  const std::string name = name_in_run(folder, path);
  if (name.empty()) return;
  throw UserError(concat("--run-dir ", folder.string(), ": the ", role, " '", path.string(), "', which this run reads, ",
                         name == "." ? "is that folder" : "belongs to the run there",
                         ", and would be replaced or removed; copy it to another place, or give the new run a folder of its own"),
                  ExitCode::usage);
}

std::string driver::config_of(const FitOptions& options) {
  nlohmann::json values;
  const auto add = [&](const char* name, const nlohmann::json& value) { values[name] = {{"value", value}, {"from", "program"}}; };
  add("epochs", options.epochs);
  add("steps", options.steps);
  if (options.seed) add("seed", *options.seed);
  add("no-shuffle", !options.shuffle);
  add("drop-last", options.drop_last);
  if (!options.sample.empty()) add("sample", options.sample);
  if (!options.mix.empty()) add("mix", options.mix);
  add("schedule", options.schedule);
  add("warmup-steps", options.warmup_steps);
  add("skip-spikes", options.skip_spikes);
  add("eval-every", options.eval_every);
  add("early-stop", options.early_stop);
  add("save-best", options.save_best);
  add("max-time", options.max_seconds);
  add("log-every", options.log_every);
  add("keep", options.keep);
  return values.dump();
}

RunDirectory::RunDirectory(const Path& path, EarlierRun earlier) : impl_(new Impl(path, earlier)) {}
RunDirectory::RunDirectory(RunDirectory&&) noexcept = default;
RunDirectory& RunDirectory::operator=(RunDirectory&&) noexcept = default;
RunDirectory::~RunDirectory() = default;

const std::string& RunDirectory::path() const { return impl_->path; }
bool RunDirectory::goes_on() const { return impl_->has_run && impl_->earlier == EarlierRun::resume; }
std::string RunDirectory::timed_choices() const {
  return goes_on() ? driver::timed_choices_of(impl_->checkpoints()) : std::string();
}
void RunDirectory::set_config(std::string_view json) {
  check_user(nlohmann::json::accept(json), "the configuration of a run is no JSON: '", json.substr(0, 60),
             json.size() > 60 ? "..." : "", "'");
  impl_->config = json;
}

void RunDirectory::log(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (!impl_->log_file) impl_->log += concat(line, "\n");
  else *impl_->log_file << line << '\n' << std::flush;
}

}  // namespace gcomp
