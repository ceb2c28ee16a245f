// --loss-chunks: the last product and the loss by parts of the rows, whatever else a step does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "gcomp/gcomp.h"
#include "runtime/cpu/find_compiler.h"
#include "tests/drive/command.h"
#include "tests/drive/recorded_model.h"
#include "tests/temporary_directory.h"

namespace gcomp::test {
namespace {

using Words = std::vector<std::string>;

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

struct Steps {
  std::vector<double> losses;
  std::string bytes;  ///< of the trained model
};

Steps some_steps(const RecordedModel& model, const Words& more, std::int64_t steps = 4) {
  const TemporaryDirectory folder;
  Words words{"train",     model.model(),      "--data", model.data(),      "--steps", std::to_string(steps),
              "--metrics", folder / "m.jsonl", "--out",  folder / "t.onnx", "--quiet"};
  const CommandResult result = run_gcomp(joined(joined(std::move(words), recipe_of(model).train_options), more));
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return {step_losses(folder / "m.jsonl"), contents(folder / "t.onnx")};
}

class LossChunks : public testing::TestWithParam<RecordedModel> {};

// PyTorch's record, whose loss is whole.
TEST_P(LossChunks, FollowTheRecord) {
  const RecordedModel& model = GetParam();
  if (model.name.starts_with("unet")) {
    const TemporaryDirectory folder;
    const CommandResult refused = run_gcomp(
        joined({"train", model.model(), "--data", model.data(), "--steps", "1", "--loss-chunks", "2", "--out", folder / "t.onnx"},
               recipe_of(model).train_options));
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.errors.find("--loss-chunks 2: the loss looks at no matrix product"), std::string::npos) << refused.errors;
    return;
  }
  const Recipe recipe = recipe_of(model);
  const std::vector<double> losses = some_steps(model, {"--loss-chunks", "2"}, recipe.steps).losses;
  const Tensor wanted = load_arrays(model.folder / "reference.npz").at("loss");
  ASSERT_EQ(static_cast<std::int64_t>(losses.size()), wanted.elements());
  for (std::size_t i = 0; i < losses.size(); ++i)
    ASSERT_NEAR(losses[i] / wanted.at(static_cast<std::int64_t>(i)), 1, float32_loss_tolerance(model, recipe, i))
        << "step " << i + 1;
}
INSTANTIATE_TEST_SUITE_P(Recorded, LossChunks, testing::ValuesIn(distinct_models()),
                         [](const auto& info) { return info.param.name; });

// Threads, ranks, a resumed run and recomputed activations change no bit of a step by parts.
TEST(LossChunksOfTheCommand, KeepTheirBits) {
  const RecordedModel model = recorded_model("gpt_tiny");
  const Words parts{"--loss-chunks", "4", "--micro-batches", "2"};
  const Steps once = some_steps(model, parts);
  EXPECT_FALSE(once.bytes == some_steps(model, {"--micro-batches", "2"}).bytes) << "the loss is whole";
  std::vector<Words> ways{{"--threads", "1"}, {"--recompute", "least"}, {"--isa", "avx2"}};
  if (!runtime::cpu::find_program("mpirun").empty()) ways.push_back({"--ranks", "2"});
  for (const Words& way : ways) EXPECT_TRUE(some_steps(model, joined(parts, way)).bytes == once.bytes) << way[0];
}

TEST(LossChunksOfTheCommand, GoWithPrecisionClippingAndAverages) {
  const RecordedModel model = recorded_model("gpt_tiny");
  for (const Words& more : {Words{"--precision", "bf16"}, Words{"--precision", "f16"}, Words{"--precision", "f64"},
                            Words{"--clip-norm", "0.5", "--ema", "0.9", "--skip-non-finite"}}) {
    const Steps whole = some_steps(model, more), parts = some_steps(model, joined(more, {"--loss-chunks", "auto"}));
    ASSERT_EQ(whole.losses.size(), parts.losses.size());
    for (std::size_t i = 0; i < whole.losses.size(); ++i)
      EXPECT_NEAR(parts.losses[i] / whole.losses[i], 1, more[1] == "f64" ? 1e-12 : 1e-4) << more[0] << ' ' << more[1];
  }
}

TEST(LossChunksOfTheLibrary, AreAnOptionOfTheTrainer) {
  const RecordedModel recorded = recorded_model("gpt_tiny");
  const Recipe recipe = recipe_of(recorded);
  const Model model = Model::load(recorded.model());
  std::map<std::string, Tensor> rows = load_arrays(recorded.data());
  const auto first_loss = [&](std::int64_t chunks) {
    Trainer trainer(model, {.loss = recipe.loss, .loss_chunks = chunks, .batch = recipe.batch, .device = DeviceRequest::cpu});
    for (const std::string& name : trainer.input_names()) {
      const std::span<std::byte> input = trainer.input(name);
      std::copy_n(rows.at(name).bytes().begin(), input.size(), input.begin());
    }
    return trainer.step();
  };
  const double wanted = load_arrays(recorded.folder / "reference.npz").at("loss").at(0);
  for (const std::int64_t chunks : {0, 1, 4}) EXPECT_NEAR(first_loss(chunks), wanted, 1e-4 * wanted) << chunks;
  EXPECT_THROW(first_loss(-1), UserError);
  EXPECT_THROW(first_loss(3), UserError);
}

// What evaluations say of whole batches and of one that is filled up; auc keeps its rows and goes whole.
TEST(LossChunksOfTheCommand, EvaluateTheSame) {
  const std::string folder = GCOMP_SOURCE_DIR "/tests/fixtures/training/heads_mlp";
  const auto evaluated = [&](const Words& more) {
    const TemporaryDirectory out;
    const CommandResult result = run_gcomp(joined({"train",       folder + ".onnx",
                                                   "--data",      folder + ".npz",
                                                   "--eval-data", folder + ".npz",
                                                   "--loss",      "cross_entropy(logits, label)",
                                                   "--batch",     "10",
                                                   "--steps",     "3",
                                                   "--precision", "f64",
                                                   "--metric",    "f1",
                                                   "--metric",    "top_k(k=2)",
                                                   "--metric",    "confusion",
                                                   "--metric",    "perplexity",
                                                   "--out",       out / "t.onnx",
                                                   "--quiet"},
                                                  more));
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result.output.substr(result.output.find("test "));
  };
  const std::string whole = evaluated({});
  EXPECT_NE(whole.find("f1"), std::string::npos) << whole;
  EXPECT_EQ(evaluated({"--loss-chunks", "5"}), whole);
  EXPECT_EQ(evaluated({"--loss-chunks", "2", "--metric", "auc(scores, yes)"}), evaluated({"--metric", "auc(scores, yes)"}));
}

// What is compiled has decided how it takes its memory; what trains nothing has no such choice.
TEST(LossChunksOfTheCommand, AreRefusedWhereTheyDecideNothing) {
  const RecordedModel model = recorded_model("gpt_tiny");
  const TemporaryDirectory folder;
  const std::string step = folder / "step.gcx";
  ASSERT_EQ(run_gcomp(joined({"train", model.model(), "--data", model.data(), "--steps", "1", "--loss-chunks", "2", "--out", step},
                             recipe_of(model).train_options))
                .exit_code,
            0);
  for (const Words& flag :
       {Words{"--loss-chunks", "2"}, Words{"--recompute", "least"}, Words{"--zero", "2"}, Words{"--bucket-mib", "1"}}) {
    const CommandResult decided =
        run_gcomp(joined({"train", step, "--data", model.data(), "--steps", "1", "--out", folder / "x.onnx"}, flag));
    EXPECT_EQ(decided.exit_code, 2);
    EXPECT_NE(decided.errors.find(concat(flag[0], ": '", step, "' is compiled, which has decided that")), std::string::npos)
        << decided.errors;
    const CommandResult untrained = run_gcomp(joined({"compile", model.model(), "--batch", "2", "--emit", "plan"}, flag));
    EXPECT_EQ(untrained.exit_code, 2);
    EXPECT_NE(untrained.errors.find(flag[0] + " has a meaning only with --train"), std::string::npos) << untrained.errors;
  }
  for (const char* number : {"0", "-1", "5000", "many"}) {
    const CommandResult refused =
        run_gcomp(joined({"train", model.model(), "--data", model.data(), "--steps", "1", "--loss-chunks", number, "--out", step},
                         recipe_of(model).train_options));
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.errors.find(concat("--loss-chunks ", number, ": wanted 1 to 4096, or auto")), std::string::npos)
        << refused.errors;
  }
}

}  // namespace
}  // namespace gcomp::test
