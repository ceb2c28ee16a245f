// The pipeline on the recorded models: launches with and without fusion, the arena against its lower bound, and the laws of the
// graph after every pass. Models lie in tests/fixtures/models and, more of them, in the shared folder.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "frontend/onnx/import.h"
#include "ir/print.h"
#include "passes/pipeline.h"
#include "passes/plan_memory.h"
#include "passes/training.h"

namespace gcomp::passes {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> model_folders() {
  std::vector<fs::path> found;
  std::set<std::string> names;
  const char* variable = std::getenv("GCOMP_SHARED");
  for (const fs::path& root :
       {fs::path(variable ? variable : "") / "models", fs::path(GCOMP_SHARED_DIR) / "models",
        fs::path(GCOMP_SOURCE_DIR) / ".." / "shared" / "models", fs::path(GCOMP_SOURCE_DIR) / "tests" / "fixtures" / "models"}) {
    if (!fs::is_directory(root)) continue;
    for (const auto& entry : fs::directory_iterator(root))
      if (fs::exists(entry.path() / "recipe.json") && names.insert(entry.path().filename().string()).second)
        found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

struct Lowered {
  int launches = 0;
  double arena_ratio = 0, seconds = 0;
};

Lowered lower_training_step(const fs::path& folder, bool fused) {
  const std::string name = folder.filename().string();
  const frontend::OnnxFile file = frontend::open_onnx((folder / "model.onnx").string());
  frontend::ImportOptions options;
  options.training = true;
  for (const auto& input : file.inputs)
    for (const auto& dimension : input.dimensions)
      if (!dimension.symbol.empty()) options.dims[dimension.symbol] = 8;
  frontend::Model model = frontend::import_onnx(file, options);
  std::vector<std::string> trained;
  for (const auto& parameter : model.parameters)
    if (parameter.trained) trained.push_back(parameter.name);
  const std::string loss = name == "mlp" ? "bce" : name == "unet_tiny" ? "bce_with_logits" : "cross_entropy";
  const auto start = std::chrono::steady_clock::now();
  make_training_step(model.graph, parse_loss(loss), {.weight_decay = {}}, trained);
  PipelineOptions pipeline_options;
  if (!fused) pipeline_options.disabled = {"fuse"};
  const ir::MemoryPlan plan = lower(model.graph, pipeline_options);
  verify_plan(model.graph, plan);
  Lowered result;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.launches = count_launches(model.graph);
  result.arena_ratio = plan.lower_bound ? static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.lower_bound) : 1;
  if (fused && std::getenv("SHOW") && name == std::getenv("SHOW")) std::printf("%s\n", ir::print(model.graph).c_str());
  return result;
}

class Models : public testing::TestWithParam<fs::path> {};

TEST_P(Models, FuseAndFitTheArena) {
  const std::string name = GetParam().filename().string();
  const Lowered fused = lower_training_step(GetParam(), true), unfused = lower_training_step(GetParam(), false);
  std::printf("%s: %d launches, %d without fusion; arena %.3f of its lower bound; passes %.2f s\n", name.c_str(), fused.launches,
              unfused.launches, fused.arena_ratio, fused.seconds);
  EXPECT_LE(2 * fused.launches, unfused.launches);
  EXPECT_LE(fused.arena_ratio, 1.05);
  EXPECT_LE(unfused.arena_ratio, 1.05);
  if (name == "mlp") { EXPECT_LE(fused.launches, 16); }
}

INSTANTIATE_TEST_SUITE_P(Recorded, Models, testing::ValuesIn(model_folders()),
                         [](const auto& info) { return info.param.filename().string(); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Models);

}  // namespace
}  // namespace gcomp::passes
