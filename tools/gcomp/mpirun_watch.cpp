#include "tools/gcomp/mpirun_watch.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace gcomp::tools {
namespace {

// Questions: mpirun that has had no children yet may be about to start some.
constexpr int kPatience = 2, kPatienceAtStart = 24;

/// Of /proc/PID/stat (proc(5)).
struct Process {
  pid_t parent = 0;
  char state = 0;
  int status = 0;  ///< of one that has ended, where it may be read
};

std::optional<Process> read_process(const std::filesystem::path& folder) {
  std::ifstream file(folder / "stat");
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  const std::size_t name_end = text.rfind(')');  // a name may hold anything
  if (name_end == text.npos) return std::nullopt;
  std::istringstream rest(text.substr(name_end + 1));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  constexpr std::size_t kState = 0, kParent = 1, kStatus = 49;  // the third, fourth and 52nd of all
  if (fields.size() <= kParent) return std::nullopt;
  Process process{static_cast<pid_t>(std::stol(fields[kParent])), fields[kState][0], 0};
  if (fields.size() > kStatus) process.status = static_cast<int>(std::stol(fields[kStatus]));
  return process;
}

}  // namespace

bool MpirunWatch::is_left_alone() {
  bool alive = false;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", none)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    const auto process = read_process(entry.path());
    if (!process || process->parent != mpirun_) continue;
    had_children_ = true;
    if (process->state == 'Z' || process->state == 'X') left_status_ = process->status;
    else alive = true;
  }
  questions_alone_ = alive ? 0 : questions_alone_ + 1;
  return questions_alone_ >= (had_children_ ? kPatience : kPatienceAtStart);
}

}  // namespace gcomp::tools
