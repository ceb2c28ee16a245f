#include "runtime/comm/launch.h"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "ir/base/error.h"

namespace gcomp::runtime::comm {
namespace {

/// The variables of one kind of launcher.
struct LauncherVariables {
  const char *launcher, *rank, *size, *on_this_machine;
  const char* also = nullptr;  ///< must be set too
};
constexpr LauncherVariables kLaunchers[] = {
    {"mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpirun (PMI)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
    // Within a batch job the tasks' variables are there for a program that srun did not start, too.
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "PMIX_RANK"},
};

int number_of(const char* name, const char* text, int least) {
  int number = 0;
  const std::string_view word(text);
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size() || number < least)
    throw UserError(concat("the launcher's variable ", name, " is '", text, "', wanted a whole number from ", least, " on"),
                    ExitCode::usage);
  return number;
}

}  // namespace

std::optional<Launched> launched_by(const Environment& variable) {
  for (const LauncherVariables& known : kLaunchers) {
    const char *rank = variable(known.rank), *size = variable(known.size);
    if (!rank || !size || (known.also && !variable(known.also))) continue;
    Launched launched{.launcher = known.launcher, .rank = number_of(known.rank, rank, 0), .size = number_of(known.size, size, 1)};
    if (const char* local = variable(known.on_this_machine)) launched.on_this_machine = number_of(known.on_this_machine, local, 1);
    if (launched.rank >= launched.size)
      throw UserError(concat("the launcher says that this is rank ", launched.rank, " of ", launched.size), ExitCode::usage);
    return launched;
  }
  return std::nullopt;
}

std::string MpirunReport::line(const std::string& line) {
  const bool rule = line.size() > 20 && line.find_first_not_of('-') == line.npos;
  if (!rule && !in_block_) return line + "\n";
  if (!rule) {
    block_ += line + "\n";
    return "";
  }
  in_block_ = !in_block_;
  return in_block_ ? "" : shown(std::exchange(block_, ""));
}

std::string MpirunReport::end() { return shown(std::exchange(block_, "")); }

std::string MpirunReport::shown(const std::string& block) {
  constexpr std::string_view kNoticed = "mpirun noticed that process rank ";
  if (const std::size_t at = block.find(kNoticed); at != block.npos) {
    const std::size_t begin = at + kNoticed.size(), number_end = block.find_first_not_of("0123456789", begin);
    const std::size_t how = block.find("exited on ", begin);
    std::string text = block.substr(how == block.npos ? number_end : how);
    while (!text.empty() && (text.back() == '\n' || text.back() == '.')) text.pop_back();
    if (constexpr std::string_view kSignal = "exited on signal "; text.starts_with(kSignal))
      signal_ = std::atoi(text.c_str() + kSignal.size());
    return concat("gcomp train: rank ", block.substr(begin, number_end - begin), " ", text, "; the others were ended\n");
  }
  for (const char* known : {"Primary job", "exited with non-zero status", "MPI_ABORT was invoked"})
    if (block.find(known) != block.npos) return "";  // the rank has said why
  return block;
}

std::vector<std::string> mpirun_command(const MpirunRequest& request) {
  std::vector<std::string> words{"mpirun", "-n", std::to_string(request.ranks), "--bind-to", "none"};
  if (request.is_root) words.emplace_back("--allow-run-as-root");
  if (request.ranks > request.processors) words.emplace_back("--oversubscribe");
  words.push_back(request.program);
  words.insert(words.end(), request.arguments.begin(), request.arguments.end());
  return words;
}

}  // namespace gcomp::runtime::comm
