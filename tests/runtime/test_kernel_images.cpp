// The container of cubins that an artifact carries: whole, or refused with a reason.
#include <gtest/gtest.h>

#include "ir/base/error.h"
#include "runtime/cuda/kernel_images.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/device.h"
#include "tests/runtime/sample_program.h"

namespace gcomp::runtime::cuda {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

KernelImages sample() {
  return {.architecture = 90,
          .images = {{.text_digest = std::string(64, 'a'), .image = bytes_of("first\n1 2\n")},
                     {.text_digest = std::string(64, 'b'), .image = {}},
                     {.text_digest = std::string(64, 'c'), .image = bytes_of("third")}}};
}

std::string refusal(std::span<const std::byte> bytes) {
  try {
    unpack(bytes);
  } catch (const UserError& error) { return error.what(); }
  return "";
}

TEST(KernelImages, ComeBackAsTheyWere) {
  EXPECT_EQ(unpack(pack(sample())), sample());
  EXPECT_EQ(unpack(pack({.architecture = 75, .images = {}})), (KernelImages{.architecture = 75, .images = {}}));
  const KernelImages images = sample();
  EXPECT_EQ(images.find(std::string(64, 'c')), &images.images[2]);
  EXPECT_EQ(images.find("d"), nullptr);
}

TEST(KernelImages, EveryFlippedByteIsNoticed) {
  const std::vector<std::byte> good = pack(sample());
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::vector<std::byte> bad = good;
    bad[i] ^= std::byte{1};
    EXPECT_NE(refusal(bad), "") << "byte " << i;
  }
}

TEST(KernelImages, EveryCutIsNoticed) {
  const std::vector<std::byte> good = pack(sample());
  for (std::size_t size = 0; size < good.size(); ++size) EXPECT_NE(refusal(std::span(good).first(size)), "") << size << " bytes";
  std::vector<std::byte> longer = good;
  longer.push_back({});
  EXPECT_EQ(refusal(longer), "its contents do not match their hash");
  EXPECT_EQ(refusal(bytes_of("\x7f"
                             "ELF")),
            "it holds no cubins of this gcomp");
}

TEST(KernelImages, TheDigestIsOfAllThatTheCompilerSees) {
  Program program = test::sample_program();
  const std::string digest = kernel_digest(program, program.kernels[0]);
  EXPECT_NE(digest, kernel_digest(program, program.kernels[1]));
  program.prelude += " ";
  EXPECT_NE(digest, kernel_digest(program, program.kernels[0]));
}

TEST(KernelImages, RunOnTheirMajorArchitectureOnly) {
  EXPECT_TRUE(runs_on(80, 80));
  EXPECT_TRUE(runs_on(80, 86));
  EXPECT_FALSE(runs_on(86, 80));
  EXPECT_FALSE(runs_on(80, 90));
  EXPECT_TRUE(runs_on(120, 121));
  EXPECT_FALSE(runs_on(100, 120));
}

}  // namespace
}  // namespace gcomp::runtime::cuda
