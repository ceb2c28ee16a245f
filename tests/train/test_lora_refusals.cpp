// Wrong uses of --lora and --adapter, and adapters of PEFT's that are damaged or ask for what gcomp does not compute.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gcomp/gcomp.h"
#include "gcomp/tensor.h"
#include "runtime/files/safetensors.h"
#include "tests/drive/command.h"
#include "tests/onnx/model_builder.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/train/lora_command.h"

namespace gcomp::test {
namespace {

using nlohmann::json;
using runtime::test::contents;
using runtime::test::put;

TEST_F(LoraCommand, WhatIsWrongIsSaid) {
  const auto expect = [&](const std::string& model, std::vector<std::string> flags, const std::string& part, int code = 2) {
    flags.insert(flags.end(), {"--steps", "1"});
    const CommandResult result = train(model, flags);
    EXPECT_EQ(result.exit_code, code) << text_of(flags) << result.errors;
    EXPECT_NE(result.errors.find(part), std::string::npos) << "no '" << part << "' in: " << result.errors;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "t.onnx"));
  };
  expect("mlp", {"--lora", "0.wieght"}, "--lora 0.wieght matches no parameter; did you mean '0.weight'?");
  expect("mlp", {"--lora", "*.bias"},
         "--lora *.bias matches nothing that can have an adapter, but '0.bias' (it is read by add, not by a matrix product or "
         "convolution alone), '2.bias'");
  expect("mlp", {"--lora", "*.bias"}, "; what can is '0.weight' and '2.weight'");
  expect("transformer", {"--lora", "norm1.*"}, "'norm1.weight' (it belongs to a norm (layer_norm)");
  expect("transformer", {"--lora", "embedding.*"}, "'embedding.weight' (it is looked up (gather))");
  expect("bn", {"--lora", "*running_mean"}, "'1.running_mean' (it is a running statistic)");
  expect("mlp", {"--lora", "*", "--freeze", "0.*, "}, "--freeze 0.*,  matches no initializer");
  expect("mlp", {"--lora", "0.weight", "--freeze", "0.*"}, "'0.weight' (it is frozen: --freeze=0.*)");
  expect("mlp", {"--lora", "0.*, , 2.*"}, "a glob is empty");
  expect("mlp", {"--lora", "*", "--lora-rank", "0"}, "--lora-rank 0: wanted 1 or more");
  expect("mlp", {"--lora", "*", "--lora-rank", "2.5"}, "--lora-rank: wanted a whole number, found '.5' after 2");
  expect("mlp", {"--lora", "*", "--lora-alpha", "0"}, "--lora-alpha 0: wanted a number above 0");
  expect("mlp", {"--lora-rank", "4"}, "--lora-rank has a meaning only with --lora GLOB");
  expect("mlp", {"--lora-alpha", "4"}, "--lora-alpha has a meaning only with --lora GLOB");
  expect("mlp", {"--out-adapter", folder_ / "a.safetensors"}, "no adapter is trained; --lora GLOB says which weights get one");
  expect("mlp", {"--lora", "*", "--out-adapter", folder_ / "a.onnx"},
         "unknown ending '.onnx', wanted a name that ends in .safetensors");
  expect("mlp", {"--lora", "*", "--out-adapter", folder_ / "missing" / "a.safetensors"}, "cannot write", 3);
  const std::string adapter = lora_fixture("lora/mlp");
  expect("mlp", {"--lora", "*", "--adapter", adapter}, "--lora and --adapter");
  expect("mlp", {"--adapter", adapter, "--lora-rank", "4"}, "--lora-rank: '" + adapter + "' has decided that");
  expect("mlp", {"--adapter", adapter, "--out-adapter", adapter + "/other.safetensors"}, "that is the adapter's configuration");
  expect("cnn", {"--adapter", adapter}, "module '0': lora_A is f64[4,5], '0.weight' wants 4x2x3x3", 3);
  expect("transformer", {"--adapter", adapter}, "the model has no module '0' that takes an adapter");
  expect("mlp", {"--adapter", folder_ / "nowhere"}, "cannot read the adapter '" + std::string(folder_ / "nowhere") + "': no such",
         3);
  expect("mlp", {"--name-map", folder_ / "names.json"}, "cannot read", 3);
  put(folder_ / "names.json", R"({"0.wight": "fc"})");
  expect("mlp", {"--name-map", folder_ / "names.json"}, "--name-map has a meaning only with --lora or --adapter");
  expect("mlp", {"--lora", "*", "--name-map", folder_ / "names.json"},
         "the model has no parameter '0.wight'; did you mean '0.weight'?");
}

/// As recurrent layers are written out: each gate reads its part. A parameter for each use would be read by a slice all the same.
TEST_F(LoraCommand, UntyingIsAdvisedWhereItHelps) {
  tests::ModelBuilder m(17);
  m.input("ids", {"6"}, ::onnx::TensorProto::INT64).floats("table", {4, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6, 5, 4, 3, 2});
  m.floats("gates", {4, 8}, std::vector<float>(32, 0.5F)).integers("axis", {1}, {1});
  m.node("Gather", {"table", "ids"}, {"e"}).node("MatMul", {"e", "table"}, {"h0"});
  std::string last = "h0";
  for (const char* gate : {"0", "1"}) {
    const std::int64_t begin = gate[0] == '0' ? 0 : 4;
    m.integers(concat("begin", gate), {1}, {begin}).integers(concat("end", gate), {1}, {begin + 4});
    m.node("Slice", {"gates", concat("begin", gate), concat("end", gate), "axis"}, {concat("w", gate)});
    m.node("MatMul", {last, concat("w", gate)}, {concat("g", gate)});
    last = concat("g", gate);
  }
  m.output(last);
  put(folder_ / "m.onnx", m.bytes());
  const auto refusal = [&](const std::string& glob) -> std::string {
    try {
      Trainer(Model::load(folder_ / "m.onnx"), {.loss = "mse", .lora = {glob}, .batch = 6, .device = DeviceRequest::cpu});
    } catch (const UserError& error) { return error.what(); }
    return "";
  };
  EXPECT_NE(refusal("gates").find("'gates' (it is read by slice"), std::string::npos) << refusal("gates");
  EXPECT_EQ(refusal("gates").find("--untie"), std::string::npos) << refusal("gates");
  EXPECT_NE(refusal("table").find("--untie 'table' gives each use its own"), std::string::npos) << refusal("table");
}

/// A folder of PEFT's with something changed in it.
TEST_F(LoraCommand, DamagedAdapters) {
  const std::string source = lora_fixture("lora/mlp");
  const std::string file = folder_ / "adapter_model.safetensors", config = folder_ / "adapter_config.json";
  const auto expect = [&](int code, const std::string& part) {
    const CommandResult result = train("mlp", {"--adapter", file, "--steps", "1"});
    EXPECT_EQ(result.exit_code, code) << result.errors;
    EXPECT_NE(result.errors.find(part), std::string::npos) << "no '" << part << "' in: " << result.errors;
  };
  const runtime::Safetensors good = runtime::read_safetensors(source + "/adapter_model.safetensors");
  const json settings = json::parse(contents(source + "/adapter_config.json"));
  const auto set = [&](const std::string& name, const json& value) {
    json changed = settings;
    changed[name] = value;
    put(config, changed.dump());
  };
  runtime::write_safetensors(file, good);
  expect(3, "adapter_config.json");
  set("r", 5);
  expect(3, "and 'r' in adapter_config.json is 5");
  set("r", 2.5);
  expect(3, "'r' is 2.5, wanted a whole number from 1 up");
  set("peft_type", "IA3");
  expect(4, "'peft_type' is \"IA3\", wanted \"LORA\"");
  set("use_dora", true);
  expect(4, "'use_dora' is true, which gcomp does not compute");
  set("something_new", {{"a", 1}});
  expect(4, "'something_new' is {\"a\":1}, which gcomp does not compute");
  set("rank_pattern", {{"0", 8}});
  expect(4, "adapters of one run have one rank and alpha");
  set("bias", "all");
  expect(4, "gcomp trains no biases beside adapters");
  set("init_lora_weights", "pissa");
  expect(4, "which changes the weights beside it");
  put(config, "{\"r\": 1, \"r\": 2}");
  expect(3, "adapter_config.json");
  put(config, settings.dump());
  runtime::Safetensors other = good;
  other.tensors.erase("base_model.model.2.lora_B.weight");
  runtime::write_safetensors(file, other);
  expect(3, "module '2' has no '.lora_B.weight'");
  other = good;
  other.tensors.emplace("base_model.model.2.lora_magnitude_vector.weight", Tensor(DType::f32, {3}));
  runtime::write_safetensors(file, other);
  expect(4, "'base_model.model.2.lora_magnitude_vector.weight' is none of an adapter that gcomp knows");
  other = good;
  other.tensors.at("base_model.model.2.lora_B.weight") = Tensor(DType::f32, {7, 4});
  runtime::write_safetensors(file, other);
  expect(3, "module '2': lora_B is f32[7,4], '2.weight' wants 3x4");
  put(file, contents(source + "/adapter_model.safetensors").substr(0, 300));
  expect(3, "adapter_model.safetensors");
  runtime::write_safetensors(file, {});
  expect(3, "it holds no tensors");
}

}  // namespace
}  // namespace gcomp::test
