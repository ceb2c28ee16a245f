// Export writes the original file with other numbers: same names, nodes and forms; split initializers become several.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/onnx/expect_error.h"
#include "tests/onnx/model_builder.h"

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

}  // namespace
}  // namespace gcomp::tests
