#include "tests/cuda/record/calls.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cuda/record/environment.h"

namespace gcomp::emulated {
namespace {

constexpr std::size_t kMostIntervals = 10000;

/// Of one that mpirun has started, else "".
std::string rank_of_process() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank ? rank : "";
}

}  // namespace

Calls::Calls() {
  if (const std::string rank = setting("FAIL_RANK"); !rank.empty() && rank != rank_of_process()) return;
  std::istringstream all(setting("FAIL"));
  for (std::string one; std::getline(all, one, ',');) {
    std::istringstream fields(one);
    std::string name, call, error;
    if (std::getline(fields, name, ':') && std::getline(fields, call, ':') && std::getline(fields, error, ':'))
      failures_.push_back({name, std::atoll(call.c_str()), std::atoi(error.c_str())});
  }
}

int Calls::enter(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const std::int64_t call = ++counts_[name];
  ++since_mark_[name];
  for (const Failure& failure : failures_)
    if (failure.name == name && failure.call == call) {
      if (failure.error == -SIGKILL) raise(SIGKILL);
      return failure.error;
    }
  return 0;
}

void Calls::add(const std::string& figure, std::int64_t amount) {
  const std::lock_guard lock(mutex_);
  counts_[figure] += amount;
  since_mark_[figure] += amount;
}

std::int64_t Calls::count(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto it = counts_.find(name);
  return it == counts_.end() ? 0 : it->second;
}

void Calls::mark(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (intervals_.size() < kMostIntervals) intervals_.push_back({name, std::move(since_mark_)});
  since_mark_.clear();
}

void Calls::report(const std::string& library, const std::map<std::string, std::int64_t>& more) const {
  const std::string folder = setting("REPORT");
  if (folder.empty()) return;
  const std::lock_guard lock(mutex_);
  nlohmann::json report = {{"counts", counts_}, {"figures", more}, {"intervals", nlohmann::json::array()}, {"after", since_mark_}};
  for (const Interval& interval : intervals_)
    report["intervals"].push_back({{"until", interval.name}, {"counts", interval.counts}});
  const std::string rank = rank_of_process();
  std::ofstream(folder + "/" + library + (rank.empty() ? "" : "." + rank) + ".json") << report.dump(1) << "\n";
}

}  // namespace gcomp::emulated
