// No kernel's text grows with a tensor's size or the length of a chain: C++ compilers take more than linear time. Graphs made to be
// long, and the training step and the forward pass of every model at hand, traps among them.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "codegen/generate.h"
#include "codegen/target.h"
#include "frontend/onnx/import.h"
#include "ir/builder.h"
#include "ir/ops/table.h"
#include "passes/pipeline.h"
#include "passes/training/training.h"
#include "runtime/program.h"

namespace gcomp::tests {
namespace {

namespace fs = std::filesystem;
using namespace ir;

/// Bytes of one kernel. CUDA's products are a text of 43 KiB whatever their sizes.
std::size_t most_text(const runtime::Target& target) { return target.kind == runtime::TargetKind::cpu ? 40 << 10 : 48 << 10; }

std::size_t longest_text(const runtime::Program& program) {
  std::size_t longest = 0;
  for (const runtime::Kernel& kernel : program.kernels) longest = std::max(longest, kernel.text.size());
  return longest;
}

std::size_t longest_text(const Graph& graph, const runtime::Target& target) {
  Graph copy = clone(graph);
  passes::PipelineOptions options;
  options.target = codegen::target_info(target);
  const MemoryPlan plan = passes::lower(copy, options);
  return longest_text(codegen::generate(copy, plan, target));
}

void expect_short(const Graph& graph, const std::string& name) {
  for (const char* device : {"cpu", "cuda:sm_90"}) {
    const runtime::Target target = runtime::parse_target(device);
    const std::size_t longest = longest_text(graph, target);
    std::printf("%s: longest kernel of %s %.1f KiB\n", name.c_str(), device, static_cast<double>(longest) / 1024);
    EXPECT_LE(longest, most_text(target)) << name << " on " << device;
  }
}

struct LongGraph {
  const char* name;
  void (*build)(Builder& b, Graph& graph);
};

Var f32(Builder& b, Shape shape, const std::string& name) { return b.input({DType::f32, std::move(shape)}, name); }

void pointwise_chain(Builder& b, Graph& graph) {
  Var x = f32(b, {64, 48}, "x"), row = f32(b, {48}, "row");
  for (int i = 0; i < 500; ++i) {
    x = i % 3 == 0 ? ops::kTanh(x) : x * 1.01 + b.broadcast(row, {64, 48});
    if (i % 7 == 0) row = row * 0.5;
  }
  graph.outputs() = {x.value};
}

void concatenation(Builder& b, Graph& graph) {
  std::vector<Var> parts;
  for (int i = 0; i < 300; ++i) parts.push_back(f32(b, {1 + i % 3, 8}, concat("x", i)) * 2.0);
  graph.outputs() = {b.concat(parts, 0).value};
}

void concatenation_of_formulas(Builder& b, Graph& graph) {
  Var x = f32(b, {16, 8}, "x");
  std::vector<Var> parts;
  for (int i = 0; i < 40; ++i) {
    Var part = b.slice_axis(x, 0, i % 16, 1);
    for (int k = 0; k < 30; ++k) part = ops::kTanh(part + static_cast<double>(i));
    parts.push_back(part);
  }
  graph.outputs() = {b.concat(parts, 0).value};
}

void sum(Builder& b, Graph& graph) {
  Var total = f32(b, {32, 32}, "x0");
  for (int i = 1; i < 200; ++i) total = total + f32(b, {32, 32}, concat("x", i));
  graph.outputs() = {total.value};
}

void rolls(Builder& b, Graph& graph) {
  Var x = f32(b, {2, 16, 16, 8}, "x");
  for (int i = 0; i < 40; ++i) {
    const std::int64_t axis = 1 + i % 2;
    x = b.concat({b.slice_axis(x, axis, 3, 13), b.slice_axis(x, axis, 0, 3)}, axis);
  }
  graph.outputs() = {x.value};
}

void pads(Builder& b, Graph& graph) {
  Var x = f32(b, {20, 20}, "x");
  for (int i = 0; i < 40; ++i) {
    x = b.pad(x, {1, 1}, {1, 1}, 0.5);
    x = b.slice_axis(x, 0, i % 2, 20);
    x = b.slice_axis(x, 1, i % 3, 20) * 1.5;
  }
  graph.outputs() = {x.value};
}

void scatters(Builder& b, Graph& graph) {
  Var x = f32(b, {64}, "x"), updates = f32(b, {4}, "u");
  for (int i = 0; i < 100; ++i) {
    std::vector<std::int64_t> sources(64);
    for (std::int64_t k = 0; k < 64; ++k) sources[static_cast<std::size_t>(k)] = (k + i) % 16 == 0 ? 64 + k / 16 : k;
    x = b.gather(b.concat({x, updates * static_cast<double>(i)}, 0), b.constant(Tensor::of_integers(sources)), 0);
  }
  graph.outputs() = {x.value};
}

void softmaxes(Builder& b, Graph& graph) {
  Var x = f32(b, {64, 12}, "x");
  for (int i = 0; i < 40; ++i) x = b.apply(ops::kSoftmax, {x * 1.5}, {{"axis", std::int64_t{1}}});
  graph.outputs() = {x.value};
}

void rolled_norms(Builder& b, Graph& graph) {
  Var x = f32(b, {2, 16, 16, 16}, "x");
  for (int i = 0; i < 6; ++i) {
    for (const std::int64_t axis : {1, 2}) x = b.concat({b.slice_axis(x, axis, 3, 13), b.slice_axis(x, axis, 0, 3)}, axis);
    x = x - b.broadcast(b.mean(x, {3}), x.shape(), {0, 1, 2});
  }
  graph.outputs() = {x.value};
}

constexpr LongGraph kLongGraphs[] = {
    {"PointwiseChain", pointwise_chain},
    {"Concatenation", concatenation},
    {"ConcatenationOfFormulas", concatenation_of_formulas},
    {"Sum", sum},
    {"Rolls", rolls},
    {"Pads", pads},
    {"Scatters", scatters},
    {"Softmaxes", softmaxes},
    {"RolledNorms", rolled_norms},
};

class KernelText : public testing::TestWithParam<LongGraph> {};

TEST_P(KernelText, IsBoundedHoweverLongTheGraph) {
  Graph graph;
  Builder b(graph);
  GetParam().build(b, graph);
  expect_short(graph, GetParam().name);
}

INSTANTIATE_TEST_SUITE_P(LongGraphs, KernelText, testing::ValuesIn(kLongGraphs),
                         [](const auto& info) { return std::string(info.param.name); });

std::vector<fs::path> model_files() {
  std::vector<fs::path> files;
  const char* variable = std::getenv("GCOMP_SHARED_DIR");
  std::set<std::string> names;
  for (const fs::path& models :
       {fs::path(variable ? variable : "") / "models", fs::path(GCOMP_SHARED_DIR) / "models",
        fs::path(GCOMP_SOURCE_DIR) / ".." / "shared" / "models", fs::path(GCOMP_SOURCE_DIR) / "tests" / "fixtures" / "models"}) {
    std::error_code missing;
    for (const auto& entry : fs::directory_iterator(models, missing))
      if (fs::exists(entry.path() / "recipe.json") && names.insert(entry.path().filename().string()).second)
        files.push_back(entry.path() / "model.onnx");
    for (const auto& entry : fs::directory_iterator(models / "traps", missing))
      if (entry.path().extension() == ".onnx" && names.insert(entry.path().filename().string()).second)
        files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string name_of(const fs::path& file) {
  return file.filename() == "model.onnx" ? file.parent_path().filename().string() : file.stem().string();
}

frontend::ImportedModel import_for(const frontend::OnnxFile& file, bool training) {
  frontend::ImportOptions options;
  options.training = training;
  for (const auto& input : file.inputs)
    for (const auto& dimension : input.dimensions)
      if (!dimension.symbol.empty()) options.dims[dimension.symbol] = 8;
  return frontend::import_onnx(file, options);
}

class KernelTextOfModels : public testing::TestWithParam<fs::path> {};

TEST_P(KernelTextOfModels, IsBounded) {
  const std::string name = name_of(GetParam());
  const frontend::OnnxFile file = frontend::open_onnx(GetParam().string());
  try {
    expect_short(import_for(file, false).graph, name);
    frontend::ImportedModel model = import_for(file, true);
    std::vector<std::string> trained;
    for (const auto& parameter : model.parameters)
      if (parameter.trained) trained.push_back(parameter.name);
    passes::make_training_step(model.graph, passes::parse_loss("mse"), {}, trained);
    expect_short(model.graph, name + " training");
  } catch (const UserError& error) { std::printf("%s goes no further: %s\n", name.c_str(), error.what()); }
}

INSTANTIATE_TEST_SUITE_P(Recorded, KernelTextOfModels, testing::ValuesIn(model_files()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace gcomp::tests
