#include <gtest/gtest.h>

#include "runtime/artifact.h"
#include "runtime/files/sha256.h"
#include "runtime/files/signature.h"
#include "runtime/files/zip_archive.h"
#include "tests/runtime/sample_program.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::runtime {
namespace {

using test::contents;
using test::put;
using test::sample_program;
using test::TemporaryDirectory;
using test::user_error;

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Artifact sample_artifact() {
  Artifact artifact;
  artifact.programs = {sample_program(), sample_program()};
  artifact.programs[1].name = "forward";
  artifact.binaries = {{"cubins/sm_90/k0.cubin", bytes_of("one")}, {"cubins/sm_90/k1.cubin", bytes_of("")}};
  artifact.weights = {{"fc.weight", Tensor::of(DType::f32, {2}, {1, -1})}, {"fc.bias", Tensor::of(DType::f32, {1}, {3})}};
  artifact.metadata = {{"model", "mlp.onnx"}, {"loss", "cross_entropy"}};
  return artifact;
}

/// Writes the sample with the bytes of one entry (or its name) replaced; entries without a replacement are copied.
void tamper(const std::filesystem::path& good, const std::filesystem::path& bad, const std::string& entry, const std::string& name,
            const std::string& text) {
  const ZipReader from(good);
  std::vector<std::vector<std::byte>> kept;
  for (std::size_t i = 0; i < from.entries().size(); ++i)
    kept.push_back(from.entries()[i].name == entry ? bytes_of(text) : from.read(i));
  ZipWriter to(bad);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const std::string& old = from.entries()[i].name;
    if (old != entry || !name.empty()) to.add(old == entry ? name : old, kept[i], Compression::stored);
  }
  to.commit();
}

TEST(Sha256, KnownAnswer) {
  EXPECT_EQ(sha256(bytes_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Artifact, ComesBackAndEqualOnesHaveEqualBytes) {
  const TemporaryDirectory directory;
  write_artifact(directory / "a.gcx", sample_artifact());
  write_artifact(directory / "b.gcx", sample_artifact());
  EXPECT_EQ(read_artifact(directory / "a.gcx"), sample_artifact());
  EXPECT_EQ(contents(directory / "a.gcx"), contents(directory / "b.gcx"));
  EXPECT_EQ(directory.files(), 2);
  write_artifact(directory / "b.gcx", {});
  EXPECT_EQ(read_artifact(directory / "b.gcx"), Artifact());
}

TEST(Artifact, KernelsLieInItAsText) {
  const TemporaryDirectory directory;
  write_artifact(directory / "a.gcx", sample_artifact());
  const ZipReader archive(directory / "a.gcx");
  for (const char* name : {"manifest.json", "programs/train_step.pb", "kernels/forward/k0.cu", "kernels/forward/prelude.h",
                           "cubins/sm_90/k0.cubin", "weights.safetensors"})
    EXPECT_GE(archive.find(name), 0) << name;
  EXPECT_EQ(archive.read(static_cast<std::size_t>(archive.find("kernels/train_step/k0.cu"))), bytes_of("void k0() {}\n"));
}

TEST(Artifact, DamageNamesTheEntry) {
  const TemporaryDirectory directory;
  const auto good = directory / "good.gcx", bad = directory / "bad.gcx";
  write_artifact(good, sample_artifact());
  const struct {
    const char *entry, *name, *text, *wanted;
  } cases[] = {
      {"kernels/forward/k0.cu", "kernels/forward/k0.cu", "void k0() { evil(); }",
       "entry 'kernels/forward/k0.cu' is damaged: its SHA-256"},
      {"programs/forward.pb", "programs/forward.pb", "x", "entry 'programs/forward.pb' is damaged"},
      {"weights.safetensors", "weights.safetensors", "x", "entry 'weights.safetensors' is damaged"},
      {"weights.safetensors", "", "", "entry 'weights.safetensors' is missing"},
      {"programs/forward.pb", "", "", "entry 'programs/forward.pb' is missing"},
      {"cubins/sm_90/k0.cubin", "cubins/sm_90/k9.cubin", "one", "entry 'cubins/sm_90/k9.cubin' is not in the manifest"},
      {"manifest.json", "", "", "it is no gcomp artifact: entry 'manifest.json' is missing"},
      {"manifest.json", "manifest.json", "{", "entry 'manifest.json' it is no valid JSON"},
      {"manifest.json", "manifest.json", R"({"format":"gcx","schema":3,"gcomp":"9.1"})",
       "entry 'manifest.json' is of schema 3, written by gcomp 9.1; this is gcomp 0.1.0, which reads schema 2"},
      {"manifest.json", "manifest.json", R"({"format":"other"})", "is of another format"},
      {"manifest.json", "manifest.json",
       R"({"format":"gcx","schema":2,"gcomp":"0.1.0","target":"","programs":[3],"metadata":{},"entries":{}})",
       "entry 'programs/.pb' is missing"},
      {"manifest.json", "manifest.json",
       R"({"format":"gcx","schema":2,"gcomp":"0.1.0","target":"","programs":[],"metadata":{},"entries":{},"sing":1})",
       "entry 'manifest.json' has an unknown member 'sing'"},
      {"manifest.json", "manifest.json",
       R"({"format":"gcx","schema":2,"gcomp":"0.1.0","target":"","programs":[],"metadata":{},"entries":{"x":{"sha256":"0"}}})",
       "entry 'manifest.json' lacks 'bytes'"},
  };
  for (const auto& c : cases) {
    tamper(good, bad, c.entry, c.name, c.text);
    const std::string message = user_error([&] { read_artifact(bad); });
    EXPECT_NE(message.find(c.wanted), std::string::npos) << message;
    EXPECT_EQ(message.find("'" + bad.string() + "'"), 0u) << message;
  }
}

TEST(Artifact, DamagedFilesNeverCrash) {
  const TemporaryDirectory directory;
  Artifact artifact;
  artifact.programs = {Program()};
  artifact.programs[0].name = "p";
  artifact.weights = {{"w", Tensor::of(DType::f32, {1}, {1})}};
  write_artifact(directory / "good.gcx", artifact);
  const std::string good = contents(directory / "good.gcx");
  const int refused = test::survive_damage(good, [&](const std::string& bytes) {
    put(directory / "bad.gcx", bytes);
    read_artifact(directory / "bad.gcx");
  });
  EXPECT_GT(refused, static_cast<int>(good.size()));
}

TEST(Artifact, WhatCannotBeStoredIsGcompsFault) {
  const TemporaryDirectory directory;
  for (const char* path : {"../evil.so", "cpu/../../evil", "/cpu/x", "cpu//x", "cpu/", "other/x.so", "cpu/a b"}) {
    Artifact artifact;
    artifact.binaries = {{path, {}}};
    EXPECT_THROW(write_artifact(directory / "a.gcx", artifact), InternalError) << path;
  }
  Artifact twice = sample_artifact();
  twice.programs[1].name = "train_step";
  EXPECT_THROW(write_artifact(directory / "a.gcx", twice), InternalError);
  EXPECT_EQ(directory.files(), 0);
}

TEST(SignedArtifact, IsReadByWhoeverAndCheckedByWhoAsks) {
  const TemporaryDirectory directory;
  write_artifact(directory / "plain.gcx", sample_artifact());
  const PrivateKey key = PrivateKey::make(), other = PrivateKey::make();
  put(directory / "key.pem", key.public_key().pem());
  put(directory / "other.pem", other.public_key().pem());
  const ArtifactTrust by_key{.signed_by = directory / "key.pem"}, by_other{.signed_by = directory / "other.pem"};
  EXPECT_NE(user_error([&] { read_artifact(directory / "plain.gcx", by_key); }).find("it is not signed"), std::string::npos);
  EXPECT_EQ(signer_of(directory / "plain.gcx"), "");

  sign_artifact(directory / "plain.gcx", directory / "signed.gcx", key);
  EXPECT_EQ(read_artifact(directory / "signed.gcx"), sample_artifact());
  EXPECT_EQ(read_artifact(directory / "signed.gcx", by_key), sample_artifact());
  EXPECT_EQ(signer_of(directory / "signed.gcx"), key.public_key().id());
  EXPECT_NE(user_error([&] { read_artifact(directory / "signed.gcx", by_other); }).find("wanted " + other.public_key().id()),
            std::string::npos);
  sign_artifact(directory / "signed.gcx", directory / "signed.gcx", other);
  EXPECT_EQ(read_artifact(directory / "signed.gcx", by_other), sample_artifact());
}

TEST(SignedArtifact, NoChangeOfContentKeepsTheSignature) {
  const TemporaryDirectory directory;
  const PrivateKey key = PrivateKey::make();
  put(directory / "key.pem", key.public_key().pem());
  const ArtifactTrust by_key{.signed_by = directory / "key.pem"};
  write_artifact(directory / "good.gcx", sample_artifact());
  sign_artifact(directory / "good.gcx", directory / "good.gcx", key);
  Artifact changed = sample_artifact();
  changed.binaries[0].second = bytes_of("two");
  write_artifact(directory / "changed.gcx", changed);
  // Whoever exchanges code and mends the manifest has no signature for it.
  const ZipReader good(directory / "good.gcx"), bad(directory / "changed.gcx");
  const auto signature = good.read(static_cast<std::size_t>(good.find("signature.json")));
  ZipWriter forged(directory / "forged.gcx");
  std::vector<std::vector<std::byte>> kept;
  for (std::size_t i = 0; i < bad.entries().size(); ++i) kept.push_back(bad.read(i));
  for (std::size_t i = 0; i < kept.size(); ++i) forged.add(bad.entries()[i].name, kept[i], Compression::stored);
  forged.add("signature.json", signature, Compression::stored);
  forged.commit();
  EXPECT_EQ(read_artifact(directory / "forged.gcx"), changed) << "without a demand only damage is looked for";
  EXPECT_NE(user_error([&] { read_artifact(directory / "forged.gcx", by_key); }).find("changed after it was signed"),
            std::string::npos);
  for (const char* text : {"", "{}", "{\"algorithm\":\"none\",\"key\":\"\",\"signature\":\"\"}",
                           "{\"algorithm\":\"ed25519\",\"key\":\"x\",\"signature\":\"zz\"}"}) {
    tamper(directory / "good.gcx", directory / "bad.gcx", "signature.json", "signature.json", text);
    EXPECT_NE(user_error([&] { read_artifact(directory / "bad.gcx", by_key); }), "") << text;
  }
}

TEST(SignedArtifact, MachineCodeIsLeftOutOnDemand) {
  const TemporaryDirectory directory;
  write_artifact(directory / "a.gcx", sample_artifact());
  EXPECT_TRUE(read_artifact(directory / "a.gcx", {.binaries = false}).binaries.empty());
}

}  // namespace
}  // namespace gcomp::runtime
