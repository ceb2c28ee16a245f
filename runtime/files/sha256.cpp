#include "runtime/files/sha256.h"

#include <openssl/evp.h>

#include <cerrno>
#include <fstream>
#include <memory>
#include <system_error>
#include <vector>

#include "ir/base/error.h"
#include "runtime/files/hexadecimal.h"

namespace gcomp::runtime {

std::string sha256(std::span<const std::byte> bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  check_internal(EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr) == 1, "SHA-256 failed");
  return to_hexadecimal(std::as_bytes(std::span(digest, length)));
}

std::string sha256(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

struct Sha256::State {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context{EVP_MD_CTX_new(), &EVP_MD_CTX_free};
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  check_internal(state_->context && EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr) == 1, "SHA-256 failed");
}
Sha256::~Sha256() = default;

void Sha256::add(std::span<const std::byte> bytes) {
  check_internal(EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()) == 1, "SHA-256 failed");
}

std::string Sha256::digest() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  check_internal(EVP_DigestFinal_ex(state_->context.get(), digest, &length) == 1, "SHA-256 failed");
  return to_hexadecimal(std::as_bytes(std::span(digest, length)));
}

std::string sha256_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  check_user(file.good(), "cannot read '", path.string(), "': ", std::generic_category().message(errno));
  Sha256 hash;
  std::vector<char> part(1 << 20);
  while (file.read(part.data(), static_cast<std::streamsize>(part.size())).gcount() > 0)
    hash.add(std::as_bytes(std::span(part.data(), static_cast<std::size_t>(file.gcount()))));
  check_user(!file.bad(), "cannot read '", path.string(), "': ", std::generic_category().message(errno));
  return hash.digest();
}

}  // namespace gcomp::runtime
