#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cfloat>
#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "runtime/metrics.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::runtime {
namespace {

using test::contents;
using test::put;
using test::TemporaryDirectory;
using test::user_error;

std::string json(std::initializer_list<Metric> metrics) {
  std::string text;
  append_json(text, std::span<const Metric>(metrics.begin(), metrics.size()));
  return text;
}

TEST(Metrics, LinesAreThereAsSoonAsWritten) {
  const TemporaryDirectory directory;
  MetricsWriter writer(directory / "m.jsonl");
  writer.write({{"step", 1}, {"epoch", 1}, {"loss", std::log(2.0)}});
  EXPECT_EQ(contents(directory / "m.jsonl"), "{\"step\":1,\"epoch\":1,\"loss\":0.6931471805599453}\n");
  writer.write({{"eval", "test.npz"}, {"loss", 0.5}, {"accuracy", 1.0}});
  EXPECT_EQ(contents(directory / "m.jsonl"),
            "{\"step\":1,\"epoch\":1,\"loss\":0.6931471805599453}\n{\"eval\":\"test.npz\",\"loss\":0.5,\"accuracy\":1.0}\n");
}

TEST(Metrics, DoublesReadBackExactly) {
  for (double value : {0.0, -0.0, 1.0, 0.1, 1.0 / 3, 1e22, 1e-300, DBL_MAX, DBL_MIN, DBL_TRUE_MIN, -123456789.123456789,
                       static_cast<double>(0.1f)}) {
    const std::string text = json({{"v", value}});
    const auto parsed = nlohmann::json::parse(text).at("v");
    EXPECT_TRUE(parsed.is_number_float()) << text;
    EXPECT_EQ(parsed.get<double>(), value) << text;
    EXPECT_EQ(std::signbit(parsed.get<double>()), std::signbit(value)) << text;
  }
  EXPECT_EQ(json({{"v", INT64_MIN}}), "{\"v\":-9223372036854775808}");
  EXPECT_EQ(json({}), "{}");
}

TEST(Metrics, WhatJsonLacksIsNullAndText) {
  EXPECT_EQ(json({{"loss", std::nan("")}}), R"({"loss":null,"loss_text":"nan"})");
  EXPECT_EQ(json({{"loss", INFINITY}, {"b", -INFINITY}}), R"({"loss":null,"loss_text":"inf","b":null,"b_text":"-inf"})");
}

TEST(Metrics, ListsAreLists) {
  const std::vector<double> rates{0.1, 1, NAN};
  EXPECT_EQ(json({{"lr_groups", std::span<const double>(rates)}, {"none", std::span<const double>()}}),
            "{\"lr_groups\":[0.1,1.0,null],\"none\":[]}");
}

TEST(Metrics, AnyTextIsValidJson) {
  EXPECT_EQ(json({{"a\"b", "\\ \n\x01 \xc3\xa4"}}), "{\"a\\\"b\":\"\\\\ \\u000a\\u0001 \xc3\xa4\"}");
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  for (const std::string& text : {all, std::string("\xed\xa0\x80"), std::string("\xf4\x90\x80\x80"), std::string("\xc0\x80"),
                                  std::string("\xe2\x82"), std::string("\xf0\x9f\x98\x80")})
    EXPECT_TRUE(nlohmann::json::accept(json({{text, text}})));
  EXPECT_EQ(json({{"v", "\xf0\x9f\x98\x80\xff"}}), "{\"v\":\"\xf0\x9f\x98\x80\xef\xbf\xbd\"}");
}

TEST(Metrics, AnOlderFileStaysUntilTheFirstLine) {
  const TemporaryDirectory directory;
  const auto path = directory / "m.jsonl";
  put(path, "older\n");
  { MetricsWriter refused(path); }
  EXPECT_EQ(contents(path), "older\n");
  MetricsWriter writer(path);
  writer.write({{"step", 1}});
  writer.write({{"step", 2}});
  EXPECT_EQ(contents(path), "{\"step\":1}\n{\"step\":2}\n");
}

TEST(Metrics, WhatCannotBeWrittenIsSaid) {
  const TemporaryDirectory directory;
  const auto path = directory / "none/m.jsonl";
  EXPECT_EQ(user_error([&] { MetricsWriter writer(path); }), "cannot write '" + path.string() + "': No such file or directory");
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  MetricsWriter full("/dev/full");
  EXPECT_EQ(user_error([&] { full.write({{"step", 1}}); }), "cannot write '/dev/full': No space left on device");
}

TEST(Metrics, AFullDiskLeavesWholeLines) {
  const TemporaryDirectory directory;
  const auto path = directory / "m.jsonl";
  MetricsWriter writer(path);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{25, before.rlim_max};  // two lines of eleven bytes and a bit
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  writer.write({{"step", 1}});
  writer.write({{"step", 2}});
  const std::string message = user_error([&] { writer.write({{"step", 3}}); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(message, "cannot write '" + path.string() + "': File too large");
  EXPECT_EQ(contents(path), "{\"step\":1}\n{\"step\":2}\n");
}

}  // namespace
}  // namespace gcomp::runtime
