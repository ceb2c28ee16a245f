// Ed25519 signatures (RFC 8032) by libcrypto. Keys are PEM files: `openssl genpkey -algorithm ed25519` writes a private one, and
// `openssl pkey -pubout` the public one to it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_pkey_st;

namespace gcomp::runtime {

class PublicKey {
 public:
  /// Throws UserError where the file is unreadable or holds no public Ed25519 key.
  static PublicKey load(const std::filesystem::path& path);

  /// Whether `signature`, 64 bytes, is of these bytes by the private key of this one.
  bool accepts(std::span<const std::byte> bytes, std::string_view signature) const;
  /// The first 16 hexadecimal digits of the SHA-256 of the raw key: how people tell keys apart.
  std::string id() const;
  std::string pem() const;

 private:
  friend class PrivateKey;
  explicit PublicKey(std::shared_ptr<evp_pkey_st> key) : key_(std::move(key)) {}
  std::shared_ptr<evp_pkey_st> key_;
};

class PrivateKey {
 public:
  /// A new key from the system's randomness.
  static PrivateKey make();
  /// Throws UserError where the file is unreadable or holds no private Ed25519 key without a passphrase.
  static PrivateKey load(const std::filesystem::path& path);

  /// 64 bytes; the same for the same bytes.
  std::string sign(std::span<const std::byte> bytes) const;
  PublicKey public_key() const { return PublicKey(key_); }
  std::string pem() const;

 private:
  explicit PrivateKey(std::shared_ptr<evp_pkey_st> key) : key_(std::move(key)) {}
  std::shared_ptr<evp_pkey_st> key_;
};

}  // namespace gcomp::runtime
