#include "runtime/files/signature.h"

#include <openssl/evp.h>
#include <openssl/pem.h>

#include <vector>

#include "ir/base/error.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/sha256.h"

namespace gcomp::runtime {
namespace {

constexpr std::size_t kSignatureBytes = 64, kKeyBytes = 32;
constexpr std::uintmax_t kLargestKeyFile = 64 << 10;

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using DigestContext = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

const unsigned char* raw(std::span<const std::byte> bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }

std::shared_ptr<EVP_PKEY> owned(EVP_PKEY* key) { return {key, EVP_PKEY_free}; }

/// Reads a key with `read`, one of PEM_read_bio_*; `kind` names what the file should hold.
template <class Read>
std::shared_ptr<EVP_PKEY> load_key(const std::filesystem::path& path, std::string_view kind, const Read& read) {
  const std::vector<std::byte> text = read_file(path, kLargestKeyFile);
  const Bio memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free);
  // Without a passphrase to ask for, an encrypted key is refused instead of asking on the terminal.
  char no_passphrase[] = "";
  auto key = owned(read(memory.get(), nullptr, nullptr, no_passphrase));
  check_user(key && EVP_PKEY_get_id(key.get()) == EVP_PKEY_ED25519, "'", path.string(), "' holds no ", kind,
             " Ed25519 key in PEM form without a passphrase");
  return key;
}

/// What `write`, one of PEM_write_bio_*, writes.
template <class Write>
std::string pem_of(const Write& write) {
  const Bio memory(BIO_new(BIO_s_mem()), BIO_free);
  check_internal(memory && write(memory.get()) == 1, "libcrypto writes no key");
  char* text = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &text);
  return {text, static_cast<std::size_t>(size)};
}

}  // namespace

PublicKey PublicKey::load(const std::filesystem::path& path) { return PublicKey(load_key(path, "public", PEM_read_bio_PUBKEY)); }

bool PublicKey::accepts(std::span<const std::byte> bytes, std::string_view signature) const {
  if (signature.size() != kSignatureBytes) return false;
  const DigestContext context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (!context || EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key_.get()) != 1) return false;
  return EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()), signature.size(), raw(bytes),
                          bytes.size()) == 1;
}

std::string PublicKey::id() const {
  std::byte key[kKeyBytes];
  std::size_t size = sizeof key;
  check_internal(EVP_PKEY_get_raw_public_key(key_.get(), reinterpret_cast<unsigned char*>(key), &size) == 1, "a key without bytes");
  return sha256(std::span(key, size)).substr(0, 16);
}

std::string PublicKey::pem() const {
  return pem_of([&](BIO* out) { return PEM_write_bio_PUBKEY(out, key_.get()); });
}

PrivateKey PrivateKey::make() {
  auto key = owned(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  if (!key) throw DeviceError("libcrypto makes no Ed25519 key: the system gives it no randomness");
  return PrivateKey(std::move(key));
}

PrivateKey PrivateKey::load(const std::filesystem::path& path) {
  return PrivateKey(load_key(path, "private", PEM_read_bio_PrivateKey));
}

std::string PrivateKey::sign(std::span<const std::byte> bytes) const {
  const DigestContext context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  std::string signature(kSignatureBytes, '\0');
  std::size_t size = signature.size();
  const bool done =
      context && EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()) == 1 &&
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size, raw(bytes), bytes.size()) == 1;
  check_internal(done && size == kSignatureBytes, "libcrypto does not sign");
  return signature;
}

std::string PrivateKey::pem() const {
  return pem_of([&](BIO* out) { return PEM_write_bio_PKCS8PrivateKey(out, key_.get(), nullptr, nullptr, 0, nullptr, nullptr); });
}

}  // namespace gcomp::runtime
