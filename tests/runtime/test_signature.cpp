// Ed25519: the test vectors of RFC 8032, section 7.1, as the outside word; and files that hold no key.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/files/signature.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::runtime::test {
namespace {

std::string from_hex(std::string_view digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  return bytes;
}

std::span<const std::byte> bytes_in(const std::string& text) { return std::as_bytes(std::span(text)); }

// RFC 8032, 7.1, TEST 2; the private key as PKCS #8, whose last 32 bytes are the vector's secret key.
constexpr const char* kPrivateKey =
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7\n"
    "-----END PRIVATE KEY-----\n";
const std::string kMessage = "\x72";
const std::string kSignature = from_hex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c"
    "00");

TEST(Signature, IsTheOneOfTheStandard) {
  TemporaryDirectory folder;
  put(folder / "key.pem", kPrivateKey);
  const PrivateKey key = PrivateKey::load(folder / "key.pem");
  EXPECT_EQ(key.sign(bytes_in(kMessage)), kSignature);
  EXPECT_TRUE(key.public_key().accepts(bytes_in(kMessage), kSignature));
  EXPECT_EQ(key.pem(), kPrivateKey);
}

TEST(Signature, IsOfTheseBytesByThisKeyAlone) {
  TemporaryDirectory folder;
  const PrivateKey key = PrivateKey::make(), other = PrivateKey::make();
  put(folder / "public.pem", key.public_key().pem());
  const PublicKey known = PublicKey::load(folder / "public.pem");
  EXPECT_EQ(known.id(), key.public_key().id());
  EXPECT_NE(known.id(), other.public_key().id());
  const std::string message = "what is signed";
  const std::string signature = key.sign(bytes_in(message));
  EXPECT_TRUE(known.accepts(bytes_in(message), signature));
  EXPECT_FALSE(known.accepts(bytes_in(message), other.sign(bytes_in(message))));
  EXPECT_FALSE(known.accepts(bytes_in("what is signeD"), signature));
  EXPECT_FALSE(known.accepts(bytes_in(message), signature.substr(1)));
  EXPECT_FALSE(known.accepts(bytes_in(message), ""));
  for (std::size_t i = 0; i < signature.size(); ++i) {
    std::string bad = signature;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_FALSE(known.accepts(bytes_in(message), bad)) << "byte " << i;
  }
}

TEST(Signature, FilesWithoutAKeyAreRefused) {
  TemporaryDirectory folder;
  put(folder / "key.pem", kPrivateKey);
  put(folder / "empty.pem", "");
  put(folder / "cut.pem", std::string(kPrivateKey).substr(0, 60));
  for (const char* name : {"empty.pem", "cut.pem"}) {
    EXPECT_NE(user_error([&] { PrivateKey::load(folder / name); }).find("holds no private Ed25519 key"), std::string::npos) << name;
    EXPECT_NE(user_error([&] { PublicKey::load(folder / name); }).find("holds no public Ed25519 key"), std::string::npos) << name;
  }
  EXPECT_NE(user_error([&] { PublicKey::load(folder / "key.pem"); }).find("holds no public"), std::string::npos);
  EXPECT_NE(user_error([&] { PublicKey::load(folder / "none.pem"); }).find("cannot read"), std::string::npos);
}

}  // namespace
}  // namespace gcomp::runtime::test
