// gcomp train on a model of the record with low-rank adapters.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/drive/command.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {

inline std::string lora_fixture(const std::string& name) {
  return std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/training/" + name;
}

inline std::string text_of(const std::vector<std::string>& flags) {
  std::string text;
  for (const std::string& flag : flags) text += " " + flag;
  return text;
}

class LoraCommand : public testing::Test {
 protected:
  CommandResult train(const std::string& model, const std::vector<std::string>& more, const std::string& out = "t.onnx") {
    const std::string path = model.ends_with(".gcx") ? std::string(folder_ / model) : lora_fixture(model + ".onnx");
    const std::string data = lora_fixture((model.ends_with(".gcx") ? "mlp" : model) + ".npz");
    std::vector<std::string> arguments{"train", path, "--data", data, "--metrics", folder_ / "m.jsonl", "--out", folder_ / out};
    if (!model.ends_with(".gcx")) arguments.insert(arguments.end(), {"--loss", "cross_entropy", "--batch", "6", "--no-shuffle"});
    if (model == "bn") arguments.insert(arguments.end(), {"--batchnorm-variance", "unbiased"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  }
  std::vector<nlohmann::json> metrics() const {
    std::ifstream in(folder_ / "m.jsonl");
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  runtime::test::TemporaryDirectory folder_;
};

}  // namespace gcomp::test
