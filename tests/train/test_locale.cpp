// An application's locale writes numbers its own way; what gcomp makes of numbers, kernels before all, is the same everywhere.
#include <gtest/gtest.h>

#include <clocale>
#include <cmath>
#include <locale>
#include <string>

#include "gcomp/arrays.h"
#include "gcomp/gcomp.h"
#include "ir/nest/scalar_body.h"
#include "tests/temporary_directory.h"

namespace gcomp {
namespace {

/// As in much of Europe: 1.234,5.
struct European : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

/// Streams that are made while it lives go by these rules.
class InAnotherLocale {
 public:
  InAnotherLocale() : before_(std::locale::global(std::locale(std::locale::classic(), new European))) {}
  ~InAnotherLocale() { std::locale::global(before_); }

 private:
  std::locale before_;
};

struct Trained {
  std::string digest;
  Tensor y;
};

/// Sizes of four digits, numbers with fractions.
Trained train(const test::TemporaryDirectory& folder) {
  const Model model = Model::define([](Layers& nn) {
    Var x = nn.input("x", DType::f32, {kBatch, 1234});
    nn.output("y", nn.linear("out", nn.gelu(nn.layer_norm("norm", x)) * 1234.5, 1100));
  });
  DeviceOptions device;
  device.cache_directory = (folder / "cache").string();
  Trainer trainer(
      model, {.loss = "mse", .optimizer = {"adam(lr=0.0125)"}, .batch = 2, .device = DeviceRequest::cpu, .device_options = device});
  Tensor x(DType::f32, {2, 1234}), label(DType::f32, {2, 1100});
  for (std::int64_t i = 0; i < x.elements(); ++i) x.set(i, std::sin(static_cast<double>(i)));
  for (int step = 0; step < 2; ++step) trainer.train_step({{"x", x}, {"label", label}});
  return {trainer.weights_digest(), trainer.predict({{"x", x}})[0].second};
}

TEST(Locale, ChangesNoNumber) {
  const test::TemporaryDirectory folder, other;
  const Trained classic = train(folder);
  const InAnotherLocale european;
  const Trained there = train(other);
  EXPECT_EQ(there.digest, classic.digest);
  EXPECT_EQ(there.y, classic.y);
  write_npy(folder / "y.npy", there.y);
  EXPECT_EQ(read_npy(folder / "y.npy"), classic.y);
}

/// The C library's locale has a decimal point of its own, which printf writes.
TEST(Locale, OfTheCLibraryWritesNoConstant) {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  const std::string classic = ir::literal_text(DType::f32, -1.7);
  EXPECT_EQ(classic, "(-0x1.b33334p+0f)");
  EXPECT_EQ(ir::literal_text(DType::f64, 0x1.8p-1000), "(0x1.8p-1000)");
  const char* found = nullptr;
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"})
    if (!found) found = std::setlocale(LC_ALL, name);
  if (!found) GTEST_SKIP() << "no locale with a decimal comma is installed";
  const std::string there = ir::literal_text(DType::f32, -1.7);
  std::setlocale(LC_ALL, before.c_str());
  EXPECT_EQ(there, classic);
}

}  // namespace
}  // namespace gcomp
