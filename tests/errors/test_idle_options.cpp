// Options that change nothing: a note says so, and what cannot be meant is refused.
#include <nlohmann/json.hpp>

#include "gcomp/arrays.h"
#include "tests/errors/bad_input.h"

namespace gcomp::test {
namespace {

class IdleOptions : public BadInput {
 protected:
  CommandResult eval(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"eval", model_, "--data", data_, "--loss", "cross_entropy"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  }
  CommandResult run(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"run", model_, "--inputs", data_, "--outputs", folder_ / "y.npz"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  }
  static void expect_note(const CommandResult& result, const std::string& note) {
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_NE(result.errors.find("note: " + note), std::string::npos) << "no '" << note << "' in: " << result.errors;
  }
};

TEST_F(IdleOptions, OfRanksAreNoted) {
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--zero", "2"}, {"--bucket-mib", "4"}, {"--no-overlap"}, {"--time-exchanges"}})
    expect_note(train(options), options[0] + " changes nothing: one process trains alone (--ranks N starts several)");
  expect_note(train({"--sync-batchnorm"}), "--sync-batchnorm changes nothing: without --micro-batches and ranks a batch is whole");
  const CommandResult plain = train();
  EXPECT_EQ(plain.errors.find("changes nothing"), std::string::npos) << plain.errors;
}

TEST_F(IdleOptions, OfCudaAreNotedOnTheCpu) {
  for (const char* option : {"--tune", "--tf32", "--prefer-cudnn", "--check-steps"})
    expect_note(eval({"--device", "cpu", option}), std::string(option) + " changes nothing with --device cpu: it is for CUDA");
}

TEST_F(IdleOptions, NumbersThatWouldBeTakenForNoneAreRefused) {
  for (const char* command : {"eval", "run"}) {
    const auto refused = [&](const std::vector<std::string>& options, const std::string& message) {
      expect_refused(command == std::string("eval") ? eval(options) : run(options), ExitCode::usage, {message});
    };
    refused({"--batch", "0"}, "--batch 0: wanted 1 or more");
    refused({"--workers", "-1"}, "--workers -1: wanted 0 to 256");
  }
  expect_refused(eval({"--metric", "accuracy", "--metric", "accuracy"}), ExitCode::usage, {"--metric accuracy is given twice"});
  expect_refused(run_gcomp({"train", model_, "--data", data_, "--loss", "cross_entropy", "--steps", "1", "--batch", "0", "--out",
                            folder_ / "t.onnx"}),
                 ExitCode::usage, {"--batch 0: wanted 1 or more"});
}

TEST_F(IdleOptions, BytesThatAreTakenForPixelsAreNoted) {
  write_data({{"x", Tensor(DType::u8, {8, 3})}, {"label", Tensor(DType::i64, {8})}});
  expect_note(train(), "'" + data_ + "': what feeds 'x' are unsigned bytes, which are taken for pixels and divided by 255");
  EXPECT_EQ(train({"--augment", "standardize(x)"}).errors.find("divided by 255"), std::string::npos)
      << "it takes bytes for numbers";
}

TEST_F(IdleOptions, BytesAreRunAsTheyAreTrained) {
  const auto outputs = [&](const Tensor& x) {
    write_data({{"x", x}});
    const CommandResult result = run_gcomp({"run", model_, "--inputs", data_, "--outputs", folder_ / "y.npz"});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(result.errors.find("divided by 255") != std::string::npos, x.dtype() == DType::u8) << result.errors;
    return read_npz(folder_ / "y.npz").at(0).second;
  };
  std::vector<double> bytes, floats;
  for (int i = 0; i < 8 * 3; ++i) {
    bytes.push_back(i * 11 % 256);
    floats.push_back(bytes.back() / 255);
  }
  const Tensor made = outputs(Tensor::of(DType::u8, {8, 3}, bytes)), wanted = outputs(Tensor::of(DType::f32, {8, 3}, floats));
  for (std::int64_t i = 0; i < wanted.elements(); ++i) EXPECT_NEAR(made.at(i), wanted.at(i), 1e-6) << i;
}

TEST_F(IdleOptions, AModelThatIsMissingIsNamedAlone) {
  const std::string missing = folder_ / "i.gcx";
  const CommandResult result = run_gcomp({"eval", missing, "--data", data_});
  EXPECT_EQ(result.errors.rfind("gcomp eval: cannot read '" + missing + "'", 0), 0u) << result.errors;
}

TEST_F(IdleOptions, WhatIsRefusedIsJsonWhereThatIsWanted) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"train", "--foo", "--json"}, {"--json", "trian"}, {"eval", model_, "--batch", "x", "--json"}}) {
    const CommandResult result = run_gcomp(words);
    EXPECT_EQ(result.exit_code, 2);
    const nlohmann::json json = nlohmann::json::parse(result.output, nullptr, false);
    ASSERT_TRUE(json.is_object()) << result.output;
    EXPECT_EQ(json.at("exit_code"), 2);
    EXPECT_NE(result.errors.find(json.at("error").get<std::string>()), std::string::npos);
  }
}

TEST_F(IdleOptions, HelpSaysWhatIsRequired) {
  const std::string help = run_gcomp({"train", "--help"}).output;
  EXPECT_NE(help.find("--out FILE  "), std::string::npos) << help;
  EXPECT_NE(help.find("--data DATA ... REQUIRED"), std::string::npos) << help;
  EXPECT_NE(help.find("results, warnings and errors only"), std::string::npos) << help;
}

}  // namespace
}  // namespace gcomp::test
