// An ONNX file is untrusted: whatever is wrong with it ends in a UserError, before anything is allocated from its numbers.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "tests/onnx/expect_error.h"
#include "tests/onnx/model_builder.h"

namespace gcomp::tests {
namespace {

namespace fs = std::filesystem;

ModelBuilder small() {
  ModelBuilder m;
  m.input("x", {"batch", "3"})
      .floats("fc.weight", {3, 2}, {1, 2, 3, 4, 5, 6})
      .node("MatMul", {"x", "fc.weight"}, {"y"})
      .output("y");
  return m;
}

TEST(Open, TellsWhatTheFileHolds) {
  const auto file = small().open();
  ASSERT_EQ(file.inputs.size(), 1u);
  EXPECT_EQ(to_string(file.inputs[0]), "x: f32[batch,3]");
  ASSERT_EQ(file.operators.size(), 1u);
  EXPECT_EQ(file.operators[0], (std::pair<std::string, int>("MatMul", 1)));
  ASSERT_EQ(file.initializers.size(), 1u);
  EXPECT_EQ(file.initializers[0].shape, (Shape{3, 2}));
  EXPECT_EQ(file.opsets.at(""), 20);
}

TEST(Open, RefusesWhatIsNoModel) {
  for (const std::string& bytes : {std::string(), std::string("not a model"), std::string(1000, '\xff'), std::string(64, '\0')})
    expect_error([&] { frontend::open_onnx_bytes(bytes, "bad.onnx"); }, {"bad.onnx"});
  expect_error([] { frontend::open_onnx("/nowhere/model.onnx"); }, {"/nowhere/model.onnx", "no such file"});
  expect_error([] { frontend::open_onnx("/tmp"); }, {"not a regular file"});
}

TEST(Open, EveryTruncationIsAnErrorOrASmallerModel) {
  const std::string bytes = small().bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    try {
      import_onnx(frontend::open_onnx_bytes(bytes.substr(0, size), "cut.onnx"), {.dims = {{"batch", 2}}});
    } catch (const UserError&) {}
  }
}

TEST(Open, EveryFlippedByteIsAnErrorOrAModel) {
  const std::string bytes = small().bytes();
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (int bit : {0, 3, 7}) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      try {
        import_onnx(frontend::open_onnx_bytes(flipped, "flipped.onnx"), {.dims = {{"batch", 2}}});
      } catch (const UserError&) {}
    }
  }
}

TEST(Open, ChecksNames) {
  ModelBuilder unknown = small();
  unknown.node("Relu", {"nothing"}, {"z"});
  expect_error([&] { unknown.open(); }, {"node_z", "'nothing'", "nothing before it makes"});
  ModelBuilder twice = small();
  twice.node("Relu", {"y"}, {"y"});
  expect_error([&] { twice.open(); }, {"'y'", "made twice"});
  ModelBuilder parameter = small();
  parameter.floats("t", {1}, {1}).node("Relu", {"y"}, {"t"});
  expect_error([&] { parameter.open(); }, {"'t'", "made twice", "a parameter of the module is called so"});
  ModelBuilder backwards;
  backwards.input("x", {"2"}).node("Add", {"x", "b"}, {"a"}).node("Add", {"x", "a"}, {"b"}).output("b");
  expect_error([&] { backwards.open(); }, {"node_a", "'b'"});
  ModelBuilder output = small();
  output.output("lost");
  expect_error([&] { output.open(); }, {"'lost'", "made by no node"});
  ModelBuilder same = small();
  same.floats("fc.weight", {1}, {1});
  expect_error([&] { same.open(); }, {"two initializers", "fc.weight"});
}

TEST(Open, ChecksUtf8) {
  for (const char* name : {"\xff", "a\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "cut\xe2\x82"}) {
    ModelBuilder m = small();
    m.node("Relu", {"y"}, {name});
    expect_error([&] { m.open(); }, {"no UTF-8"});
  }
  ModelBuilder good = small();
  good.node("Relu", {"y"}, {"\u00e9\u20ac\U0001F600"});
  good.open();
}

TEST(Open, AnOperatorSetMayBeImportedTwiceInOneVersion) {
  ModelBuilder m(20);
  m.input("x", {"4"}).node("Relu", {"x"}, {"y"}).output("y");
  m.model.add_opset_import()->set_version(20);
  EXPECT_EQ(m.open().opsets.at(""), 20);
  m.model.mutable_opset_import(1)->set_domain("ai.onnx");
  EXPECT_EQ(m.open().opsets.at(""), 20);
  m.model.mutable_opset_import(1)->set_version(19);
  expect_error([&] { m.open(); }, {"operator set 'ai.onnx' is imported in two versions, 20 and 19"});
}

/// As skl2onnx writes LogisticRegression.
TEST(Open, OperatorsOfAnotherDomainAreNamedWithIt) {
  ModelBuilder m(21);
  m.input("x", {"n", "4"}).node("LinearClassifier", {"x"}, {"label", "scores"}).output("scores");
  m.model.mutable_graph()->mutable_node(0)->set_domain("ai.onnx.ml");
  m.model.add_opset_import()->set_domain("ai.onnx.ml");
  m.model.mutable_opset_import(1)->set_version(1);
  m.model.add_opset_import()->set_version(21);
  expect_error(
      [&] {
        m.import({.dims = {{"n", 2}}});
      },
      {"ai.onnx.ml::LinearClassifier 'node_label' (opset 1): operator not supported"}, ExitCode::unsupported);
}

TEST(Open, ChecksOpsets) {
  ModelBuilder m = small();
  m.model.mutable_opset_import(0)->set_version(999);
  expect_error([&] { m.open(); }, {"operator set 999"}, ExitCode::unsupported);
}

TEST(Open, BoundsTheDepthOfSubgraphs) {
  ModelBuilder m = small();
  ::onnx::GraphProto inner;
  inner.set_name("inner");
  for (int depth = 0; depth < 20; ++depth) {
    ::onnx::GraphProto outer;
    auto* node = outer.add_node();
    node->set_op_type("If");
    node->add_input("y");
    auto* attribute = node->add_attribute();
    attribute->set_name("then_branch");
    attribute->set_type(::onnx::AttributeProto::GRAPH);
    *attribute->mutable_g() = inner;
    inner = outer;
  }
  *m.model.mutable_graph()->add_node() = inner.node(0);
  expect_error([&] { m.open(); }, {"nest more than 16"});
}

TEST(Open, RefusesFunctionsThatCallThemselves) {
  ModelBuilder m = small();
  auto* function = m.model.add_functions();
  function->set_name("f");
  function->set_domain("own");
  function->add_input("x");
  function->add_output("y");
  auto* call = function->add_node();
  call->set_op_type("f");
  call->set_domain("own");
  call->add_input("x");
  call->add_output("y");
  expect_error([&] { m.open(); }, {"'f'", "calls itself"});
}

/// A function `name` of one node, which calls `callee`, itself or inside an If within `depth` others.
void add_calling_function(ModelBuilder& m, const std::string& name, const std::string& callee, int depth) {
  auto* function = m.model.add_functions();
  function->set_name(name);
  function->set_domain("own");
  function->add_input("x");
  function->add_output("y");
  ::onnx::NodeProto node;
  node.set_op_type(callee);
  node.set_domain("own");
  node.add_input("x");
  node.add_output(depth ? "inner" : "y");
  for (int i = 0; i < depth; ++i) {
    ::onnx::NodeProto outer;
    outer.set_op_type("If");
    outer.add_input("x");
    outer.add_output(i + 1 < depth ? "inner" + std::to_string(i) : "y");
    for (const char* branch : {"then_branch", "else_branch"}) {
      auto* attribute = outer.add_attribute();
      attribute->set_name(branch);
      attribute->set_type(::onnx::AttributeProto::GRAPH);
      *attribute->mutable_g()->add_node() = node;
      attribute->mutable_g()->add_output()->set_name(node.output(0));
    }
    node = outer;
  }
  *function->add_node() = node;
}

TEST(Open, RefusesFunctionsThatCallThemselvesInsideSubgraphs) {
  for (int depth : {0, 1, 3}) {
    ModelBuilder m = small();
    add_calling_function(m, "f", "g", depth);
    add_calling_function(m, "g", "f", depth);
    expect_error([&] { m.open(); }, {"function", "calls itself"});
  }
}

TEST(Open, OwnDomainHasTwoNames) {
  ModelBuilder m = small();
  add_calling_function(m, "f", "f", 0);
  m.model.mutable_functions(0)->set_domain("");
  m.model.mutable_functions(0)->mutable_node(0)->set_domain("ai.onnx");
  expect_error([&] { m.open(); }, {"'f'", "calls itself"});
}

TEST(Open, BoundsTheDepthOfCallsInWhateverOrderFunctionsStand) {
  for (bool leaf_first : {false, true}) {
    ModelBuilder m = small();
    for (int i = 0; i < 40; ++i) {
      const int number = leaf_first ? 39 - i : i;  // functions are looked at in the order of their names
      add_calling_function(m, concat("f", leaf_first ? 10 + i : 10 + number), concat("f", leaf_first ? 9 + i : 11 + number), 0);
    }
    expect_error([&] { m.open(); }, {"function calls nest more than 16 deep"});
  }
}

TEST(Open, ChecksTensorsBeforeAllocating) {
  auto with = [](const std::vector<std::int64_t>& dims) {
    ModelBuilder m = small();
    m.initializer("big", dims, 1);
    m.node("Add", {"big", "big"}, {"z"});
    return m;
  };
  expect_error([&] { with({-1}).import({.dims = {{"batch", 1}}}); }, {"'big'", "-1"});
  expect_error(
      [&] {
        with({std::int64_t{1} << 40, std::int64_t{1} << 40}).import({.dims = {{"batch", 1}}});
      },
      {"'big'", "too large"});
  // Claims 4 GiB and holds nothing: refused by its length, not by running out of memory.
  expect_error([&] { with({std::int64_t{1} << 30}).import({.dims = {{"batch", 1}}}); }, {"'big'", "found 0 values"});
  expect_error([&] { with(std::vector<std::int64_t>(40, 1)).import({.dims = {{"batch", 1}}}); }, {"'big'", "40 dimensions"});
  ModelBuilder both = small();
  auto* tensor = both.initializer("both", {1}, 1);
  tensor->add_float_data(1);
  tensor->set_raw_data("abcd");
  expect_error([&] { both.import({.dims = {{"batch", 1}}}); }, {"'both'", "raw and typed"});
}

class ExternalData : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "gcomp_external_XXXXXX").string();
    ASSERT_TRUE(mkdtemp(pattern.data()));
    folder = pattern;
    fs::create_directory(folder / "model");
    std::ofstream(folder / "model" / "w.bin", std::ios::binary) << std::string(24, '\0') << std::string(8, '\1');
    std::ofstream(folder / "secret.bin", std::ios::binary) << std::string(64, 's');
  }
  void TearDown() override { fs::remove_all(folder); }

  void read(const std::string& location, const std::string& offset = "0", const std::string& length = "24") const {
    import_onnx(open(location, offset, length));
  }
  frontend::OnnxFile open(const std::string& location, const std::string& offset = "0", const std::string& length = "24") const {
    ModelBuilder m;
    m.input("x", {"2", "3"});
    auto* tensor = m.initializer("w", {3, 2}, 1);
    tensor->set_data_location(::onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] : {std::pair{"location", location}, {"offset", offset}, {"length", length}}) {
      auto* entry = tensor->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
    m.node("MatMul", {"x", "w"}, {"y"}).output("y");
    return frontend::open_onnx_bytes(m.bytes(), "m.onnx", (folder / "model").string());
  }

  fs::path folder;
};

TEST_F(ExternalData, ReadsAFileBesideTheModel) {
  read("w.bin");
  read("w.bin", "8");
  read("./w.bin");
}

TEST_F(ExternalData, StaysInTheModelsFolder) {
  for (const char* location : {"../secret.bin", "/etc/passwd", "a/../../secret.bin", "", "C:\\w.bin", "*/_ORT_MEM_ADDR_/_", ".."})
    expect_error([&] { read(location); }, {"external data"});
  fs::create_symlink(folder / "secret.bin", folder / "model" / "link.bin");
  expect_error([&] { read("link.bin"); }, {"symbolic link"});
  fs::create_directory_symlink(folder, folder / "model" / "up");
  expect_error([&] { read("up/secret.bin"); }, {"up/secret.bin"});
  fs::create_hard_link(folder / "secret.bin", folder / "model" / "hard.bin");
  expect_error([&] { read("hard.bin"); }, {"several names"});
  fs::create_directory(folder / "model" / "folder");
  expect_error([&] { read("folder"); }, {"not a regular file"});
  expect_error([&] { read("missing.bin"); }, {"missing.bin"});
}

TEST_F(ExternalData, IsDescribedWithWhatLoadingWillSay) {
  const auto inside = open("w.bin").initializers.at(0), outside = open("../secret.bin").initializers.at(0);
  EXPECT_EQ(inside.location, "w.bin");
  EXPECT_EQ(inside.problem, "");
  EXPECT_EQ(outside.location, "../secret.bin");
  EXPECT_NE(outside.problem.find("leaves the model's directory"), std::string::npos) << outside.problem;
  EXPECT_NE(open("w.bin", "-1").initializers.at(0).problem.find("offset"), std::string::npos);
}

TEST_F(ExternalData, ChecksOffsetAndLength) {
  expect_error([&] { read("w.bin", "9"); }, {"32 bytes", "from 9"});
  expect_error([&] { read("w.bin", "18446744073709551615"); }, {"offset"});
  expect_error([&] { read("w.bin", "-1"); }, {"offset", "-1"});
  expect_error([&] { read("w.bin", "0", "20"); }, {"20 bytes", "wants 24"});
}

TEST_F(ExternalData, IsReadOnceWhileSomebodyUsesIt) {
  const auto write = [&](char byte) { std::ofstream(folder / "model" / "w.bin", std::ios::binary) << std::string(24, byte); };
  const auto first_byte = [](const frontend::ImportedModel& model) { return static_cast<char>(model.weights.at("w").bytes()[0]); };
  write('a');
  const frontend::OnnxFile file = open("w.bin");
  {
    frontend::ImportedModel first = import_onnx(file);
    write('b');
    const frontend::ImportedModel second = import_onnx(file);
    first.weights.at("w").set(0, 1);
    EXPECT_EQ(first_byte(second), 'a');
  }
  EXPECT_EQ(first_byte(import_onnx(file)), 'b');
  const auto kept = frontend::keep_external_data(file);
  EXPECT_EQ(first_byte(import_onnx(file)), 'b');
  write('c');
  EXPECT_EQ(first_byte(import_onnx(file)), 'b');
}

TEST(Initializers, LargeOnesStayWhereTheFileHasThem) {
  constexpr std::int64_t kRows = 3, kColumns = 700;
  std::vector<float> values(kRows * kColumns);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  ModelBuilder m;
  m.input("x", {"2", "3"});
  m.initializer("w", {kRows, kColumns}, 1)->set_raw_data(values.data(), values.size() * sizeof(float));
  const frontend::OnnxFile file = m.node("MatMul", {"x", "w"}, {"y"}).output("y").open();
  frontend::ImportedModel first = import_onnx(file);
  const frontend::ImportedModel second = import_onnx(file);
  EXPECT_EQ(std::as_const(first).weights.at("w").data(), second.weights.at("w").data());
  first.weights.at("w").set(0, 5);
  EXPECT_EQ(second.weights.at("w").at(0), 0);
  EXPECT_EQ(frontend::float_initializers(file.source).at("w"), second.weights.at("w"));
}

}  // namespace
}  // namespace gcomp::tests
