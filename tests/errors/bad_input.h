// A small good model with its data, and what a test of bad input asks of a run of the command.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "ir/base/error.h"
#include "runtime/files/npz.h"
#include "tests/drive/command.h"
#include "tests/errors/bad_files.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {

/// A small good model and its data, to be spoilt, and a file where the trained model would go.
class BadInput : public testing::Test {
 protected:
  BadInput() {
    write_linear_model(model_);
    write_linear_data(data_);
    runtime::test::put(out_, "old contents");
  }

  /// gcomp train on model_ and data_ with cross_entropy, unless `more` says otherwise.
  CommandResult train(const std::vector<std::string>& more = {}, const CommandOptions& options = {}) {
    std::vector<std::string> arguments{"train", model_, "--data", data_, "--batch", "4", "--steps", "2", "--out", out_};
    const bool loss = std::find(more.begin(), more.end(), "--loss") != more.end();
    if (!loss) arguments.insert(arguments.end(), {"--loss", "cross_entropy"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments, options);
  }

  /// Checks exit code and message, and that nothing was written.
  void expect_refused(const CommandResult& result, ExitCode code, const std::vector<std::string>& parts) {
    EXPECT_EQ(result.exit_code, static_cast<int>(code)) << result.errors;
    for (const std::string& part : parts)
      EXPECT_NE(result.errors.find(part), std::string::npos) << "no '" << part << "' in: " << result.errors;
    EXPECT_EQ(result.errors.find("internal error"), std::string::npos) << result.errors;
    EXPECT_EQ(runtime::test::contents(out_), "old contents");
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      EXPECT_EQ(entry.path().filename().string().find(".tmp"), std::string::npos) << entry.path();
  }

  void write_data(std::vector<runtime::NamedTensor> arrays) { runtime::write_npz(data_, arrays); }

  runtime::test::TemporaryDirectory folder_;
  const std::string model_ = folder_ / "model.onnx", data_ = folder_ / "data.npz", out_ = folder_ / "trained.onnx";
};

}  // namespace gcomp::test
