// Export writes the original file with other numbers: same names, nodes and forms; split initializers become several.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "tests/onnx/expect_error.h"
#include "tests/onnx/model_builder.h"
#include "tests/temporary_directory.h"

namespace gcomp::tests {
namespace {

namespace fs = std::filesystem;

::onnx::ModelProto parse(const std::string& bytes) {
  ::onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(bytes));
  return model;
}

std::vector<double> values_of(const frontend::OnnxFile& file, const std::string& name) {
  return frontend::import_onnx(file, {.train = {"*"}}).weights.at(name).to_doubles();
}

TEST(Export, WithoutChangesKeepsTheModel) {
  ModelBuilder m;
  m.input("x", {"2", "2"}).floats("w.w", {2, 2}, {1, 2, 3, 4}).node("MatMul", {"x", "w.w"}, {"y"}).output("y");
  EXPECT_EQ(frontend::export_onnx_bytes(m.import(), {}), m.bytes());
}

TEST(Export, ReplacesValuesInTheFilesType) {
  ModelBuilder m;
  m.input("x", {"2", "2"}, 10);
  auto* half = m.initializer("w.w", {2, 2}, 10);
  for (int bits : {0x3C00, 0x4000, 0x4200, 0x4400}) half->add_int32_data(bits);
  m.node("MatMul", {"x", "w.w"}, {"y"}).output("y", 10);
  const frontend::ImportedModel model = m.import();
  const std::string bytes = frontend::export_onnx_bytes(model, {{"w.w", Tensor::of(DType::f32, {2, 2}, {0.5, 1.0001, -1, 100})}});
  const auto proto = parse(bytes);
  ASSERT_EQ(proto.graph().initializer_size(), 1);
  EXPECT_EQ(proto.graph().initializer(0).data_type(), 10);
  EXPECT_EQ(proto.graph().initializer(0).int32_data_size(), 0);
  EXPECT_EQ(proto.graph().initializer(0).raw_data().size(), 8u);
  EXPECT_EQ(values_of(frontend::open_onnx_bytes(bytes, "out.onnx"), "w.w"), (std::vector<double>{0.5, 1, -1, 100}));
}

TEST(Export, PartsOfASplitInitializerAreAdded) {
  ModelBuilder m;
  m.model.set_ir_version(3);
  m.input("x", {"2", "2"})
      .input("w", {"2", "2"})
      .floats("w", {2, 2}, {1, 2, 3, 4})
      .node("MatMul", {"x", "w"}, {"a"})
      .node("MatMul", {"a", "w"}, {"y"})
      .output("y");
  const frontend::ImportedModel model = m.import({.untie = {"w"}});
  const auto proto = parse(frontend::export_onnx_bytes(
      model, {{"w", Tensor::of(DType::f32, {2, 2}, {1, 1, 1, 1})}, {"w@node_y", Tensor::of(DType::f32, {2, 2}, {2, 2, 2, 2})}}));
  ASSERT_EQ(proto.graph().initializer_size(), 2);
  EXPECT_EQ(proto.graph().node(0).input(1), "w");
  EXPECT_EQ(proto.graph().node(1).input(1), "w@node_y");
  EXPECT_EQ(proto.graph().input_size(), 3) << "before IR version 4 an initializer is an input too";
  const auto file = frontend::open_onnx_bytes(proto.SerializeAsString(), "out.onnx");
  EXPECT_EQ(values_of(file, "w"), std::vector<double>(4, 1));
  EXPECT_EQ(values_of(file, "w@node_y"), std::vector<double>(4, 2));
}

TEST(Export, ATiedInitializerFollowsItsState) {
  ModelBuilder m;
  m.input("x", {"2", "2"})
      .floats("a.weight", {2, 2}, {1, 2, 3, 4})
      .floats("t", {2, 2}, {1, 3, 2, 4})
      .node("MatMul", {"x", "a.weight"}, {"h"})
      .node("MatMul", {"h", "t"}, {"y"})
      .output("y");
  const frontend::ImportedModel model = m.import({.tie = {"t"}});
  const std::string bytes = frontend::export_onnx_bytes(model, {{"a.weight", Tensor::of(DType::f32, {2, 2}, {5, 6, 7, 8})}});
  EXPECT_EQ(values_of(frontend::open_onnx_bytes(bytes, "out.onnx"), "t"), (std::vector<double>{5, 7, 6, 8}));
}

TEST(Export, EmbedsExternalData) {
  std::string pattern = (fs::temp_directory_path() / "gcomp_export_XXXXXX").string();
  ASSERT_TRUE(mkdtemp(pattern.data()));
  const fs::path folder = pattern;
  const float values[] = {1, 2, 3, 4};
  std::ofstream(folder / "w.bin", std::ios::binary).write(reinterpret_cast<const char*>(values), sizeof values);
  ModelBuilder m;
  m.input("x", {"2", "2"});
  auto* tensor = m.initializer("w.w", {2, 2}, 1);
  tensor->set_data_location(::onnx::TensorProto::EXTERNAL);
  auto* entry = tensor->add_external_data();
  entry->set_key("location");
  entry->set_value("w.bin");
  m.node("MatMul", {"x", "w.w"}, {"y"}).output("y");
  std::ofstream(folder / "m.onnx", std::ios::binary) << m.bytes();
  const frontend::ImportedModel model = frontend::import_onnx(frontend::open_onnx((folder / "m.onnx").string()));
  EXPECT_EQ(values_of(frontend::open_onnx_bytes(frontend::export_onnx_bytes(model, {}), "out"), "w.w"),
            (std::vector<double>{1, 2, 3, 4}));
  fs::remove_all(folder);
}

/// A network whose weights are 16, 12 and 8 KiB, with a bias and a shape that are small.
ModelBuilder layers() {
  ModelBuilder m;
  m.input("x", {"2", "64"});
  std::vector<float> values(64 * 64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.001F * static_cast<float>(i);
  m.floats("fc1.weight", {64, 64}, values).floats("fc1.bias", {64}, std::vector<float>(64, 0.5F));
  m.initializer("fc2.weight", {64, 48}, 1)->set_raw_data(values.data(), sizeof(float) * 64 * 48);
  auto* half = m.initializer("fc3.weight", {48, 88}, 10);
  for (int i = 0; i < 48 * 88; ++i) half->add_int32_data(0x3C00 + i % 512);
  m.integers("shape", {2}, {2, 88});
  return m.node("MatMul", {"x", "fc1.weight"}, {"a"})
      .node("Add", {"a", "fc1.bias"}, {"b"})
      .node("MatMul", {"b", "fc2.weight"}, {"c"})
      .node("Cast", {"c"}, {"d"}, {{"to", 10}})
      .node("MatMul", {"d", "fc3.weight"}, {"e"})
      .node("Reshape", {"e", "shape"}, {"y"})
      .output("y", 10);
}

/// What export writes into a folder, as who makes files of it does.
class ExportBeside : public testing::Test {
 protected:
  std::string write(const frontend::ImportedModel& model, const std::map<std::string, Tensor>& states, std::uintmax_t limit,
                    const std::string& name = "t.onnx") {
    std::string data;
    const auto append = [&](std::span<const std::byte> bytes) {
      data.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    const std::string bytes = frontend::export_onnx_bytes(model, states, frontend::ExportForm::inference, {},
                                                          {.location = name + ".data", .write = append, .limit = limit});
    test::put(folder_ / name, bytes);
    if (!data.empty()) test::put(folder_ / (name + ".data"), data);
    return folder_ / name;
  }

  test::TemporaryDirectory folder_;
};

using Entries = std::map<std::string, std::string>;

Entries place_of(const ::onnx::TensorProto& initializer) {
  Entries entries;
  for (const auto& entry : initializer.external_data()) entries[entry.key()] = entry.value();
  return entries;
}

TEST_F(ExportBeside, WhatOneFileHasNoRoomForLiesBesideIt) {
  const frontend::ImportedModel model = layers().import();
  const Tensor trained = Tensor::of(DType::f32, {64, 64}, std::vector<double>(64 * 64, 0.25));
  const std::map<std::string, Tensor> states{{"fc1.weight", trained}};
  const std::string path = write(model, states, 4096);
  const auto proto = parse(test::contents(path));
  std::vector<std::string> names;
  for (const auto& initializer : proto.graph().initializer()) names.push_back(initializer.name());
  EXPECT_EQ(names, (std::vector<std::string>{"fc1.weight", "fc1.bias", "fc2.weight", "fc3.weight", "shape"}));
  EXPECT_EQ(place_of(proto.graph().initializer(0)), (Entries{{"location", "t.onnx.data"}, {"offset", "0"}, {"length", "16384"}}));
  EXPECT_EQ(place_of(proto.graph().initializer(2)),
            (Entries{{"location", "t.onnx.data"}, {"offset", "16384"}, {"length", "12288"}}));
  EXPECT_EQ(place_of(proto.graph().initializer(3)),
            (Entries{{"location", "t.onnx.data"}, {"offset", "28672"}, {"length", "8448"}}));
  for (const int small : {1, 4})
    EXPECT_NE(proto.graph().initializer(small).data_location(), ::onnx::TensorProto::EXTERNAL)
        << names[static_cast<std::size_t>(small)];
  EXPECT_EQ(fs::file_size(path + ".data"), 28672u + 8448u);

  const frontend::OnnxFile split = frontend::open_onnx(path);
  const frontend::OnnxFile whole = frontend::open_onnx_bytes(frontend::export_onnx_bytes(model, states), "whole.onnx");
  EXPECT_EQ(split.files.size(), 2u);
  EXPECT_EQ(frontend::float_initializers(split.source), frontend::float_initializers(whole.source));
  EXPECT_EQ(values_of(split, "fc1.weight"), trained.to_doubles());
}

TEST_F(ExportBeside, OffsetsAreMultiplesOfAPage) {
  ModelBuilder m;
  m.input("x", {"2", "260"});
  m.floats("a", {260}, std::vector<float>(260, 1)).floats("b", {260}, std::vector<float>(260, 2));
  m.node("Mul", {"x", "a"}, {"h"}).node("Add", {"h", "b"}, {"y"}).output("y");
  const std::string path = write(m.import(), {}, 1000);
  const auto proto = parse(test::contents(path));
  EXPECT_EQ(place_of(proto.graph().initializer(1)), (Entries{{"location", "t.onnx.data"}, {"offset", "4096"}, {"length", "1040"}}));
  EXPECT_EQ(test::contents(path + ".data").substr(1040, 4096 - 1040), std::string(4096 - 1040, '\0'));
  EXPECT_EQ(values_of(frontend::open_onnx(path), "b"), std::vector<double>(260, 2));
}

TEST_F(ExportBeside, WhatHasRoomStaysInOneFile) {
  const frontend::ImportedModel model = layers().import();
  const std::string whole = frontend::export_onnx_bytes(model, {});
  EXPECT_EQ(test::contents(write(model, {}, whole.size() + 1024)), whole);
  EXPECT_FALSE(fs::exists(folder_ / "t.onnx.data"));
}

TEST_F(ExportBeside, AFileWithExternalDataIsWrittenAgain) {
  const std::string first = write(layers().import(), {}, 4096, "m.onnx");
  const frontend::ImportedModel model = frontend::import_onnx(frontend::open_onnx(first));
  const Tensor moved = Tensor::of(DType::f32, {64, 48}, std::vector<double>(64 * 48, -3));
  const std::string again = write(model, {{"fc2.weight", moved}}, 4096);
  auto expected = frontend::float_initializers(frontend::open_onnx(first).source);
  expected.at("fc2.weight") = moved;
  EXPECT_EQ(frontend::float_initializers(frontend::open_onnx(again).source), expected);
  const std::string inside = write(model, {{"fc2.weight", moved}}, std::uintmax_t{1} << 20, "whole.onnx");
  EXPECT_EQ(frontend::open_onnx(inside).files.size(), 1u);
  EXPECT_EQ(frontend::float_initializers(frontend::open_onnx(inside).source), expected);
}

TEST_F(ExportBeside, PartsAndTiesLieThereToo) {
  const std::vector<float> values(32 * 32, 0.5F);
  ModelBuilder m;
  m.input("x", {"2", "32"}).floats("w", {32, 32}, values).floats("t", {32, 32}, values);
  m.node("MatMul", {"x", "w"}, {"a"}).node("MatMul", {"a", "w"}, {"b"}).node("MatMul", {"b", "t"}, {"y"}).output("y");
  const frontend::ImportedModel model = m.import({.untie = {"w"}});
  std::map<std::string, Tensor> states;
  for (const auto& [name, value] : {std::pair("w", 1.0), std::pair("w@node_b", 2.0), std::pair("t", 3.0)})
    states.emplace(name, Tensor::of(DType::f32, {32, 32}, std::vector<double>(32 * 32, value)));
  const frontend::OnnxFile file = frontend::open_onnx(write(model, states, 4096));
  EXPECT_EQ(file.files.size(), 2u);
  EXPECT_EQ(frontend::float_initializers(file.source), states);
}

TEST_F(ExportBeside, WithoutRoomAndFileItIsAnError) {
  const frontend::ImportedModel model = layers().import();
  expect_error(
      [&] {
        frontend::export_onnx_bytes(model, {}, frontend::ExportForm::inference, {}, {.location = "", .write = {}, .limit = 4096});
      },
      {"with all its data inside", "at most 4096"});
  expect_error([&] { write(model, {}, 500); }, {"without what lies beside it", "at most 500"});
  expect_error([&] { frontend::check_fits_one_file(*model.source, 4096); }, {"with all its data inside"});
  frontend::check_fits_one_file(*model.source);
}

}  // namespace
}  // namespace gcomp::tests
