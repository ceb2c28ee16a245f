#include "runtime/comm/mpi_communicator.h"

#include <dlfcn.h>

#include <optional>
#include <utility>

#include "ir/base/error.h"
#include "runtime/comm/mpi_plugin.h"

namespace gcomp::runtime::comm {
namespace {

namespace fs = std::filesystem;

constexpr char kMpiCure[] =
    "install an MPI and its headers (Debian: openmpi-bin libopenmpi-dev) before gcomp is built, or build the plug-in by itself "
    "(runtime/comm/README.md)";

/// The plug-in, or why it is none.
struct LoadedPlugin {
  const GcompMpiPlugin* plugin = nullptr;
  std::string reason;
};

/// The library stays loaded: MPI keeps threads and handlers of its own.
LoadedPlugin load(const fs::path& path) {
  if (path.has_parent_path() && !fs::exists(path)) return {nullptr, "there is no such file"};
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);  // Open MPI's own plug-ins look for its symbols
  if (!library) return {nullptr, ::dlerror()};
  const auto* plugin = static_cast<const GcompMpiPlugin*>(::dlsym(library, GCOMP_MPI_PLUGIN_NAME));
  if (!plugin) return {nullptr, concat("it has no symbol ", GCOMP_MPI_PLUGIN_NAME)};
  if (plugin->version != GCOMP_MPI_PLUGIN_VERSION)
    return {nullptr, concat("it is of version ", plugin->version, ", wanted ", GCOMP_MPI_PLUGIN_VERSION, "; build it anew")};
  return {plugin, ""};
}

std::pair<fs::path, const GcompMpiPlugin*> find_plugin(const fs::path& given) {
  std::string rejected;
  for (const fs::path& candidate : mpi_plugin_candidates(given)) {
    LoadedPlugin loaded = load(candidate);
    if (loaded.plugin) return {candidate, loaded.plugin};
    rejected += concat(rejected.empty() ? "" : "; ", candidate.string(), ": ", loaded.reason);
  }
  throw DeviceError(concat("gcomp's plug-in for MPI was not found (", rejected, "); ", kMpiCure));
}

/// One channel of the plug-in.
class MpiChannel : public Communicator {
 public:
  MpiChannel(const GcompMpiPlugin& plugin, int channel) : plugin_(plugin), channel_(channel) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string description() const override { return plugin_.library(); }
  std::string host() const override { return plugin_.host(); }

  void all_to_all(std::span<const std::byte> send, std::span<std::byte> receive) override {
    const auto ranks = static_cast<std::size_t>(size_);
    check_internal(send.size() == receive.size() && send.size() % ranks == 0, "all_to_all of ", send.size(), " and ",
                   receive.size(), " bytes between ", size_, " ranks");
    check(plugin_.all_to_all(channel_, send.data(), receive.data(), send.size() / ranks));
  }
  void all_gather(std::span<const std::byte> send, std::span<std::byte> receive) override {
    check_internal(receive.size() == send.size() * static_cast<std::size_t>(size_), "all_gather of ", send.size(), " into ",
                   receive.size(), " bytes between ", size_, " ranks");
    check(plugin_.all_gather(channel_, send.data(), receive.data(), send.size()));
  }
  void broadcast(std::span<std::byte> data, int root) override {
    check(plugin_.broadcast(channel_, data.data(), data.size(), root));
  }
  void abort(int exit_code) noexcept override { plugin_.abort(exit_code); }

 protected:
  /// After the plug-in's start().
  void find_place() {
    rank_ = plugin_.rank();
    size_ = plugin_.size();
  }
  void check(int failed) const {
    if (failed) throw DeviceError(concat("MPI: ", plugin_.error()));
  }
  const GcompMpiPlugin& plugin_;

 private:
  int channel_, rank_ = 0, size_ = 1;
};

class BesideMpi final : public MpiChannel {
 public:
  explicit BesideMpi(const GcompMpiPlugin& plugin) : MpiChannel(plugin, 1) { find_place(); }
};

class MpiCommunicator final : public MpiChannel {
 public:
  explicit MpiCommunicator(const GcompMpiPlugin& plugin) : MpiChannel(plugin, 0) {
    check(plugin_.start());
    find_place();
    if (plugin_.channels() > 1) beside_.emplace(plugin);
  }
  ~MpiCommunicator() override { plugin_.stop(); }

  Communicator* beside() override { return beside_ ? &*beside_ : nullptr; }

 private:
  std::optional<BesideMpi> beside_;
};

}  // namespace

std::vector<fs::path> mpi_plugin_candidates(const fs::path& given) {
  if (!given.empty()) return {given};
  std::vector<fs::path> candidates;
  std::error_code none;
  if (const fs::path program = fs::read_symlink("/proc/self/exe", none); !program.empty()) {
    const fs::path folder = program.parent_path();
    candidates.push_back(folder / kMpiPluginFile);
    candidates.push_back(folder.parent_path() / GCOMP_LIBRARY_FOLDER / kMpiPluginFile);
  }
  candidates.emplace_back(kMpiPluginFile);
  return candidates;
}

MpiLibrary find_mpi(const fs::path& given) {
  const auto [path, plugin] = find_plugin(given);
  return {path, plugin->library()};
}

std::unique_ptr<Communicator> open_mpi(const fs::path& given) {
  return std::make_unique<MpiCommunicator>(*find_plugin(given).second);
}

}  // namespace gcomp::runtime::comm
