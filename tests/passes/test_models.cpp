// The pipeline on the recorded models: launches with and without fusion, the arena against its lower bound, and the laws of the
// graph after every pass. Models lie in tests/fixtures/models and, more of them, in the shared folder.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "codegen/target.h"
#include "frontend/onnx/import.h"
#include "ir/text/print.h"
#include "passes/attention/match_attention.h"
#include "passes/memory/plan_memory.h"
#include "passes/pipeline.h"
#include "passes/training/training.h"

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

Lowered lower_training_step(const fs::path& folder, const PipelineOptions& pipeline_options) {
  const std::string name = folder.filename().string();
  const frontend::OnnxFile file = frontend::open_onnx((folder / "model.onnx").string());
  frontend::ImportOptions options;
  options.training = true;
  for (const auto& input : file.inputs)
    for (const auto& dimension : input.dimensions)
      if (!dimension.symbol.empty()) options.dims[dimension.symbol] = 8;
  frontend::ImportedModel model = frontend::import_onnx(file, options);
  std::vector<std::string> trained;
  for (const auto& parameter : model.parameters)
    if (parameter.trained) trained.push_back(parameter.name);
  const std::string loss = name == "mlp" ? "bce" : name == "unet_tiny" ? "bce_with_logits" : "cross_entropy";
  const auto start = std::chrono::steady_clock::now();
  if (pipeline_options.target.legal_composite) match_attention(model.graph, pipeline_options.target.legal_composite);
  make_training_step(model.graph, parse_loss(loss), {}, trained);
  const ir::MemoryPlan plan = lower(model.graph, pipeline_options);
  verify_plan(model.graph, plan, {.alignment = pipeline_options.target.buffer_alignment});
  Lowered result;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.launches = count_launches(model.graph);
  result.arena_ratio = plan.lower_bound ? static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.lower_bound) : 1;
  if (pipeline_options.disabled.empty() && std::getenv("SHOW") && name == std::getenv("SHOW"))
    std::printf("%s\n", ir::print(model.graph).c_str());
  return result;
}

/// Launches of a training step at batch 8 as generated kernels take it: with fusion and without. README.md quotes some.
struct Launches {
  std::string_view model;
  int fused, unfused;
};
constexpr Launches kLaunches[] = {
    {"bert_tiny", 109, 991},
    {"bert_tiny_torchscript", 109, 1066},
    {"gpt_tiny", 124, 1149},
    {"gpt_tiny_attention_op", 124, 1129},
    {"gpt_tiny_torchscript", 124, 1131},
    {"lstm_tiny", 417, 3172},
    {"mlp", 15, 154},
    {"mnist_cnn", 24, 321},
    {"mnist_cnn_torchscript", 24, 321},
    {"mobilenet_tiny", 74, 974},
    {"resnet_tiny", 78, 890},
    {"unet_tiny", 60, 790},
    {"vit_tiny", 87, 866},
};

/// The arena of a fused step is at most so much of the lower bound of its order, as README.md says; of an unfused one 1.05.
constexpr std::string_view kArenaRatio = "1.01";

class Models : public testing::TestWithParam<fs::path> {};

TEST_P(Models, FuseAndFitTheArena) {
  const std::string name = GetParam().filename().string();
  PipelineOptions without;
  without.disabled = {"fuse"};
  const Lowered fused = lower_training_step(GetParam(), {}), unfused = lower_training_step(GetParam(), without);
  std::printf("%s: %d launches, %d without fusion; arena %.3f of its lower bound; passes %.2f s\n", name.c_str(), fused.launches,
              unfused.launches, fused.arena_ratio, fused.seconds);
  const auto* pinned = std::find_if(std::begin(kLaunches), std::end(kLaunches), [&](const Launches& l) { return l.model == name; });
  ASSERT_NE(pinned, std::end(kLaunches)) << name << " has no row of launches";
  EXPECT_EQ(fused.launches, pinned->fused);
  EXPECT_EQ(unfused.launches, pinned->unfused);
  EXPECT_LE(fused.arena_ratio, std::stod(std::string(kArenaRatio)) + 5e-3);
  EXPECT_LE(unfused.arena_ratio, 1.05);
}

/// Launches of the same steps as a target's libraries take them, with and without view_operands. Where attention is one op it is
/// what is viewed; where it is not, its products are.
struct ViewedLaunches {
  std::string_view model;
  runtime::TargetKind target;
  int viewed, copied;
};
constexpr ViewedLaunches kViewedLaunches[] = {
    {"bert_tiny", runtime::TargetKind::cpu, 101, 109}, {"bert_tiny", runtime::TargetKind::cuda, 72, 83},
    {"gpt_tiny", runtime::TargetKind::cpu, 97, 106},   {"gpt_tiny", runtime::TargetKind::cuda, 75, 90},
    {"lstm_tiny", runtime::TargetKind::cpu, 417, 417}, {"lstm_tiny", runtime::TargetKind::cuda, 291, 291},
    {"vit_tiny", runtime::TargetKind::cpu, 85, 87},    {"vit_tiny", runtime::TargetKind::cuda, 60, 68},
};

TEST_P(Models, SpareTheCopiesOfWhatLibrariesRead) {
  for (const ViewedLaunches& pinned : kViewedLaunches) {
    if (pinned.model != GetParam().filename().string()) continue;
    const runtime::Target target{pinned.target, pinned.target == runtime::TargetKind::cuda ? "sm_90" : ""};
    PipelineOptions options;
    options.target = codegen::target_info(target);
    const Lowered viewed = lower_training_step(GetParam(), options);
    options.disabled = {"view_operands"};
    const Lowered copied = lower_training_step(GetParam(), options);
    EXPECT_EQ(viewed.launches, pinned.viewed) << to_string(target);
    EXPECT_EQ(copied.launches, pinned.copied) << to_string(target);
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, Models, testing::ValuesIn(model_folders()),
                         [](const auto& info) { return info.param.filename().string(); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Models);

/// "1,188".
std::string with_thousands(int number) {
  std::string text = std::to_string(number);
  if (text.size() > 3) text.insert(text.size() - 3, ",");
  return text;
}

/// The line of README.md's table that begins so.
std::string row_of_readme(std::string_view start) {
  std::ifstream file(fs::path(GCOMP_SOURCE_DIR) / "README.md");
  std::string line;
  while (std::getline(file, line) && !line.starts_with(start)) continue;
  return line;
}

TEST(ModelsInReadme, LaunchesAreThosePinned) {
  const std::string line = row_of_readme("| fused |");
  int quoted = 0;
  for (const Launches& pinned : kLaunches) {
    const std::string name = "`" + std::string(pinned.model) + "` ";
    const std::size_t start = line.find(name);
    if (start == std::string::npos) continue;
    ++quoted;
    const std::string quote = line.substr(start, line.find(')', start) - start);
    EXPECT_TRUE(quote.starts_with(name + with_thousands(pinned.fused) + " ")) << quote;
    EXPECT_NE(quote.find("(" + with_thousands(pinned.unfused)), std::string::npos) << quote;
  }
  EXPECT_GE(quoted, 3) << line;
  const auto* viewed = std::find_if(std::begin(kViewedLaunches), std::end(kViewedLaunches), [](const ViewedLaunches& l) {
    return l.model == "gpt_tiny" && l.target == runtime::TargetKind::cpu;
  });
  EXPECT_NE(line.find(") and " + with_thousands(viewed->viewed) + " on the CPU"), std::string::npos) << line;
}

TEST(ModelsInReadme, TheArenaIsAsLargeAsItSays) {
  const std::string line = row_of_readme("| memory |");
  EXPECT_NE(line.find("at most " + std::string(kArenaRatio) + " of the lower bound"), std::string::npos) << line;
}

}  // namespace
}  // namespace gcomp::passes
