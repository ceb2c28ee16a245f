// The recorded models compiled for CUDA: their first training steps on the emulator give PyTorch's losses, and every kernel of
// theirs compiles to a cubin for every architecture, without spilling registers.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "codegen/generate.h"
#include "codegen/target.h"
#include "frontend/onnx/import.h"
#include "passes/attention/match_attention.h"
#include "passes/pipeline.h"
#include "passes/training/training.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/files/npz.h"
#include "runtime/validate.h"
#include "tests/codegen/cubin_report.h"
#include "tests/codegen/cuda_shim/program_runner.h"

namespace gcomp::tests {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 2;
constexpr std::size_t kKernelsTogether = 8;  // kernels in one source: NVRTC takes a while for a source of any size

std::vector<fs::path> folders_in(const fs::path& models) {
  std::vector<fs::path> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(models, missing))
    if (fs::exists(entry.path() / "recipe.json")) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<fs::path> fixture_folders() { return folders_in(fs::path(GCOMP_SOURCE_DIR) / "tests" / "fixtures" / "models"); }

/// Those of ../shared where they are found, else the fixtures.
std::vector<fs::path> all_folders() {
  const char* variable = std::getenv("GCOMP_SHARED_DIR");
  for (const fs::path& shared :
       {fs::path(variable ? variable : ""), fs::path(GCOMP_SHARED_DIR), fs::path(GCOMP_SOURCE_DIR) / ".." / "shared"})
    if (const auto found = folders_in(shared / "models"); !shared.empty() && !found.empty()) return found;
  return fixture_folders();
}

struct Recorded {
  nlohmann::json recipe;
  std::vector<std::pair<std::string, Tensor>> data;  ///< the first steps' rows, by input
  Tensor losses;
};

Recorded read_recorded(const fs::path& folder) {
  Recorded recorded;
  std::ifstream(folder / "recipe.json") >> recorded.recipe;
  const runtime::NpzFile data(folder / "train.npz"), reference(folder / "reference.npz");
  for (const std::string& name : data.names()) recorded.data.emplace_back(name, data.load(name));
  recorded.losses = reference.load("loss");
  return recorded;
}

/// Rows of one step.
Tensor rows_of(const Tensor& all, std::int64_t step, std::int64_t batch) {
  TensorType type = all.type();
  type.shape[0] = batch;
  Tensor rows(type);
  const std::size_t bytes = rows.bytes().size();
  std::copy_n(all.bytes().begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(step) * bytes), bytes,
              rows.bytes().begin());
  return rows;
}

passes::OptimizerSpec optimizer_of(const nlohmann::json& recipe) {
  passes::OptimizerSpec spec(recipe["optimizer"].get<std::string>());
  for (const auto& [name, value] : recipe["options"].items()) {
    if (name == "lr") continue;
    if (value.is_array()) spec.set(name, value.get<std::vector<double>>(), name);
    else if (value.is_boolean()) spec.set(name, value.get<bool>(), name);
    else spec.set(name, value.get<double>(), name);
  }
  return spec;
}

struct Compiled {
  runtime::Program program;
  std::map<std::string, Tensor> states;
};

Compiled compile(const fs::path& folder, const Recorded& recorded, const std::string& architecture) {
  const frontend::OnnxFile file = frontend::open_onnx((folder / "model.onnx").string());
  const auto batch = recorded.recipe["batch"].get<std::int64_t>();
  frontend::ImportOptions options;
  options.training = true;
  std::optional<TensorType> label;
  for (const auto& [name, tensor] : recorded.data) {
    const TensorType type = rows_of(tensor, 0, batch).type();
    if (name == "label") label = type;
    else options.shapes[name] = type.shape;
  }
  frontend::ImportedModel model = frontend::import_onnx(file, options);
  std::vector<std::string> trained;
  for (const auto& parameter : model.parameters)
    if (parameter.trained) trained.push_back(parameter.name);
  const runtime::Target target{runtime::TargetKind::cuda, architecture};
  passes::PipelineOptions pipeline;
  pipeline.target = codegen::target_info(target);
  passes::match_attention(model.graph, pipeline.target.legal_composite);
  passes::make_training_step(model.graph, passes::parse_loss(recorded.recipe["loss"].get<std::string>()),
                             optimizer_of(recorded.recipe), trained, label);
  const ir::MemoryPlan plan = passes::lower(model.graph, pipeline);
  Compiled compiled{codegen::generate(model.graph, plan, target), {}};
  runtime::validate(compiled.program);
  for (auto& [name, value] : model.weights.all()) compiled.states.emplace(name, value);
  return compiled;
}

/// Without those that stand in for others where f32 may be rounded to TF32.
std::size_t kernels_of_one_precision(const runtime::Program& program) {
  std::set<int> rounding;
  for (const runtime::Step& step : program.steps)
    if (const auto* launch = std::get_if<runtime::KernelLaunch>(&step); launch && launch->tf32)
      rounding.insert(launch->tf32->kernel);
  return program.kernels.size() - rounding.size();
}

class CudaModels : public testing::TestWithParam<fs::path> {};

TEST_P(CudaModels, FirstStepsHaveTheRecordedLosses) {
  const Recorded recorded = read_recorded(GetParam());
  const Compiled compiled = compile(GetParam(), recorded, "sm_90");
  const auto batch = recorded.recipe["batch"].get<std::int64_t>();
  EXPECT_LE(kernels_of_one_precision(compiled.program),
            48u);  // layers share their kernels but for a classifier's last, and all products a few
  cuda_shim::ProgramRunner runner(compiled.program);
  for (const runtime::State& state : compiled.program.states) {
    const std::string& name = compiled.program.buffers[static_cast<std::size_t>(state.buffer)].name;
    if (const auto found = compiled.states.find(name); found != compiled.states.end())
      runner.write(name, found->second.cast(compiled.program.buffers[static_cast<std::size_t>(state.buffer)].type.dtype));
    else EXPECT_TRUE(state.fill) << name << " has no initial value";
  }
  runner.write("learning_rate", Tensor::scalar(DType::f64, recorded.recipe["options"]["lr"].get<double>()));
  const double tolerance = std::max(1e-4, 4 * recorded.recipe["pytorch_f32"]["loss_relative"].get<double>());
  for (int step = 0; step < kSteps; ++step) {
    for (const auto& [name, tensor] : recorded.data) runner.write(name, rows_of(tensor, step, batch));
    ASSERT_EQ(runner.step(), "");
    EXPECT_NEAR(runner.read_output(0).at(0), recorded.losses.at(step), tolerance * recorded.losses.at(step)) << "step " << step;
  }
  std::printf("%s: %zu kernels, %lld kernel launches a step\n", GetParam().filename().c_str(), compiled.program.kernels.size(),
              static_cast<long long>(runner.launches() / kSteps));
}

/// Of the kernels of an architecture, every `stride`-th from `first` on.
struct CubinsOf {
  const char* architecture;
  std::size_t first = 0, stride = 1;
};

class CudaModelCubins : public testing::TestWithParam<CubinsOf> {};

TEST_P(CudaModelCubins, KernelsCompileWithoutSpills) {
  using namespace runtime::cuda;
  const LibrarySearch search = search_by_variables([](const char* name) { return static_cast<const char*>(std::getenv(name)); });
  const LibraryResult found = find_library(LibraryKind::nvrtc, search);
  if (!found.library) GTEST_SKIP() << found.description(LibraryKind::nvrtc);
  std::set<std::string> texts;
  std::string prelude;
  const std::vector<fs::path> folders = all_folders();
  for (const fs::path& folder : folders) {
    const runtime::Program program = compile(folder, read_recorded(folder), GetParam().architecture).program;
    prelude = program.prelude;
    for (const runtime::Kernel& kernel : program.kernels) texts.insert(kernel.text);
  }
  std::vector<std::string> sources;
  std::size_t kernels = 0, at = 0;
  for (const std::string& text : texts) {
    if (at++ % GetParam().stride != GetParam().first) continue;
    if (kernels++ % kKernelsTogether == 0) sources.push_back(prelude);
    sources.back() += "\n" + text;
  }
  CubinOptions options;
  options.compiler_options = {"--ptxas-options=-v"};
  for (const Cubin& cubin : compile_cubins(Nvrtc::find(search), sources, GetParam().architecture, options)) {
    EXPECT_GT(cubin.image.size(), 100u);
    const CubinReport report = cubin_report(cubin.log);
    EXPECT_EQ(report.spilled_bytes, 0) << cubin.log;
    kernels -= static_cast<std::size_t>(report.kernels);
  }
  EXPECT_EQ(kernels, 0u);
  EXPECT_FALSE(sources.empty());
  std::printf("%zu distinct kernels of %zu models\n", texts.size(), folders.size());
}

// All kernels for the oldest and for Hopper; the others have another eighth each, as NVRTC takes most of a minute for all of one.
INSTANTIATE_TEST_SUITE_P(Architectures, CudaModelCubins,
                         testing::Values(CubinsOf{"sm_75"}, CubinsOf{"sm_80", 0, 8}, CubinsOf{"sm_86", 2, 8}, CubinsOf{"sm_90"},
                                         CubinsOf{"sm_100", 4, 8}, CubinsOf{"sm_120", 6, 8}),
                         [](const auto& info) { return std::string(info.param.architecture); });

INSTANTIATE_TEST_SUITE_P(Recorded, CudaModels, testing::ValuesIn(fixture_folders()),
                         [](const auto& info) { return info.param.filename().string(); });

}  // namespace
}  // namespace gcomp::tests
