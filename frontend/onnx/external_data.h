// Data of tensors that lies beside an ONNX file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace gcomp::frontend {

struct ExternalPlace {
  std::string location;  ///< as the file says it, relative to its directory
  std::uint64_t offset = 0, length = 0;

  auto operator<=>(const ExternalPlace&) const = default;
};

/// Those bytes. Throws UserError unless `location` is a plain relative path to a regular file without links that holds them.
std::shared_ptr<const std::byte[]> read_external(const std::string& directory, const ExternalPlace& place);
/// Throws as that does, and reads nothing.
void check_external(const std::string& directory, const ExternalPlace& place);

/// What has been read of a model's external data and is still in use: another import of the model reads none of it again. Several
/// threads may ask.
class ExternalData {
 public:
  std::shared_ptr<const std::byte[]> read(const std::string& directory, const ExternalPlace& place);
  /// While the result lives, whatever is read counts as in use.
  std::shared_ptr<const void> keep();

 private:
  using Kept = std::vector<std::shared_ptr<const std::byte[]>>;

  std::mutex mutex_;
  std::map<ExternalPlace, std::weak_ptr<const std::byte[]>> known_;
  std::weak_ptr<Kept> kept_;
};

}  // namespace gcomp::frontend
