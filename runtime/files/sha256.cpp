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

std::string sha256_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  check_user(file.good(), "cannot read '", path.string(), "': ", std::generic_category().message(errno));
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  bool good = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  std::vector<char> part(1 << 20);
  while (good && file.read(part.data(), static_cast<std::streamsize>(part.size())).gcount() > 0)
    good = EVP_DigestUpdate(context.get(), part.data(), static_cast<std::size_t>(file.gcount())) == 1;
  check_user(!file.bad(), "cannot read '", path.string(), "': ", std::generic_category().message(errno));
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  check_internal(good && EVP_DigestFinal_ex(context.get(), digest, &length) == 1, "SHA-256 failed");
  return to_hexadecimal(std::as_bytes(std::span(digest, length)));
}

}  // namespace gcomp::runtime
