// What the simulator reads out of compiled programs, against the programs themselves, and gcomp scale and the plan's exchanges as
// their users see them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "codegen/generate.h"
#include "codegen/scale/rank_step.h"
#include "gcomp/driver/compile.h"
#include "gcomp/driver/loss_file.h"
#include "gcomp/driver/optimizer_text.h"
#include "gcomp/driver/saved_model.h"
#include "ir/bucket.h"
#include "runtime/comm/mpi_communicator.h"
#include "runtime/cpu/find_compiler.h"
#include "runtime/device.h"
#include "tests/device_options.h"
#include "tests/drive/command.h"
#include "tests/temporary_directory.h"

namespace gcomp::test {
namespace {

namespace scale = codegen::scale;
using Words = std::vector<std::string>;

const std::string kFixtures = std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/training/";

/// The programs of a step of the fixture by their names.
std::map<std::string, codegen::CountedProgram> step_programs(const std::string& model, const std::string& target,
                                                             const std::string& loss, std::int64_t micro_batches,
                                                             std::optional<DType> precision = DType::f32, std::int64_t rows = 4) {
  driver::GraphOptions options;
  options.target = runtime::parse_target(target);
  options.precision = precision;
  options.shapes.batch = rows * micro_batches;
  options.step.micro_batches = micro_batches;
  driver::ModelGraph made =
      driver::training_graph(Model::load(kFixtures + model), options, driver::read_loss(loss, ""), driver::read_optimizer("sgd"));
  std::map<std::string, codegen::CountedProgram> programs;
  for (driver::StepGraph& part : driver::step_graphs(made)) {
    const driver::LoweredGraph lowered = driver::lower_graph(std::move(part.graph), options.target, part.hooks);
    programs.emplace(part.program, codegen::generate_counted(lowered.graph, lowered.plan, options.target));
  }
  return programs;
}

/// Runs a program of the CPU as far as its first `steps` steps, and gives what then lies in its gradients, which begin as nonsense.
class PartialRun {
 public:
  explicit PartialRun(runtime::Program program)
      : program_(std::move(program)), device_(runtime::open_device(runtime::TargetKind::cpu, device_options(1))) {}

  std::map<std::string, Tensor> gradients_after(std::size_t steps) {
    runtime::Program part = program_;
    part.steps.resize(steps);
    const auto states = device_->allocate_states();
    const auto executable = device_->load(part, states, binary_);
    if (binary_.empty()) binary_.assign(executable->kernel_binary().begin(), executable->kernel_binary().end());
    for (std::size_t i = 0; i < part.inputs.size(); ++i) executable->set_input(i, filled(executable->input_buffer(i).type, 3));
    for (const runtime::State& state : part.states) {
      const runtime::Buffer& buffer = part.buffers[static_cast<std::size_t>(state.buffer)];
      states->write(buffer.name, filled(buffer.type, state.role == runtime::StateRole::scratch ? 7777 : 5));
    }
    executable->run();
    std::map<std::string, Tensor> gradients;
    for (const runtime::State& state : part.states)
      if (const std::string& name = part.buffers[static_cast<std::size_t>(state.buffer)].name; name.ends_with(".gradient"))
        gradients.emplace(name, states->read(name));
    return gradients;
  }

 private:
  /// Different small numbers; integers are classes.
  static Tensor filled(const TensorType& type, int salt) {
    Tensor tensor(type.dtype, type.shape);
    for (std::int64_t i = 0; i < type.elements(); ++i)
      tensor.set(i, is_float(type.dtype) ? salt > 100 ? salt : std::sin(static_cast<double>(salt * (i + 1))) * 0.3 + 0.4
                                         : static_cast<double>(i % 2));
    return tensor;
  }

  runtime::Program program_;
  std::unique_ptr<runtime::Device> device_;
  std::vector<std::byte> binary_;
};

// The oracle is the machine: cut off where a gradient is said to be ready, the program has made it, and a step earlier it has not.
TEST(ScaleProgram, GradientsAreReadyWhereTheyAreWritten) {
  if (on_another_device()) GTEST_SKIP() << "programs of the CPU";
  const codegen::CountedProgram shard = step_programs("cnn.onnx", "cpu", "cross_entropy", 2).at(driver::kShardProgram);
  const std::vector<scale::ParameterUse> uses = scale::parameter_uses(shard.program, scale::Segments::together);
  ASSERT_GE(uses.size(), 4u);
  PartialRun run(shard.program);
  const std::map<std::string, Tensor> whole = run.gradients_after(shard.program.steps.size());
  EXPECT_EQ(whole.size(), uses.size() + whole.count("loss.gradient"));
  bool early = false;
  for (const scale::ParameterUse& use : uses) {
    const std::string name = use.name + ".gradient";
    ASSERT_TRUE(whole.contains(name)) << name;
    ASSERT_GE(use.ready, 1u) << name;
    EXPECT_TRUE(run.gradients_after(use.ready).at(name) == whole.at(name)) << name << " after " << use.ready << " steps";
    EXPECT_FALSE(run.gradients_after(use.ready - 1).at(name) == whole.at(name)) << name << " a step before " << use.ready;
    early = early || use.ready + 3 < shard.program.steps.size();
  }
  EXPECT_TRUE(early) << "no gradient is ready before the end";
}

/// The one product of these extents, in any order.
std::size_t product_of(const runtime::Program& program, std::array<std::int64_t, 3> extents) {
  std::ranges::sort(extents);
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < program.steps.size(); ++i)
    if (const auto* call = std::get_if<runtime::MatmulCall>(&program.steps[i])) {
      std::array<std::int64_t, 3> own{call->m, call->n, call->k};
      std::ranges::sort(own);
      if (own == extents) found.push_back(i);
    }
  EXPECT_FALSE(found.empty());
  return found.empty() ? 0 : found.front();
}

// A weight is wanted by the product that has its extents and the rows of a shard: forward is the first such.
TEST(ScaleProgram, ParametersAreWantedWhereTheyAreRead) {
  for (const char* target : {"cpu", "cuda:sm_90"}) {
    const codegen::CountedProgram shard = step_programs("mlp.onnx", target, "mse", 2, DType::f32, 23).at(driver::kShardProgram);
    std::size_t weights = 0;
    for (const scale::ParameterUse& use : scale::parameter_uses(shard.program, scale::Segments::together)) {
      const auto buffer = std::ranges::find(shard.program.buffers, use.name, &runtime::Buffer::name);
      if (buffer->type.shape.size() != 2) continue;
      ++weights;
      EXPECT_EQ(use.first_read, product_of(shard.program, {23, buffer->type.shape[0], buffer->type.shape[1]})) << use.name;
      EXPECT_EQ(use.parameter_bytes, static_cast<double>(buffer->type.elements() * 4)) << use.name;
    }
    EXPECT_GE(weights, 2u);
  }
}

// In bf16 all casts of gradients are one launch at the end; by themselves they could go as the products come.
TEST(ScaleProgram, CastsTogetherAndApart) {
  const codegen::CountedProgram shard = step_programs("mlp.onnx", "cuda:sm_90", "mse", 2, DType::bf16).at(driver::kShardProgram);
  const std::vector<scale::ParameterUse> together = scale::parameter_uses(shard.program, scale::Segments::together);
  const std::vector<scale::ParameterUse> apart = scale::parameter_uses(shard.program, scale::Segments::apart);
  ASSERT_EQ(together.size(), apart.size());
  bool sooner = false, later = false;
  for (std::size_t i = 0; i < together.size(); ++i) {
    EXPECT_LE(apart[i].ready, together[i].ready) << apart[i].name;
    EXPECT_GE(apart[i].first_read, together[i].first_read) << apart[i].name;
    EXPECT_LT(apart[i].first_read, apart[i].ready) << apart[i].name;
    sooner = sooner || apart[i].ready < together[i].ready;
    later = later || apart[i].first_read > together[i].first_read;
  }
  EXPECT_TRUE(sooner);
  EXPECT_TRUE(later);
}

// What the simulator takes sums of micro-batches to cost is what their programs cost.
TEST(ScaleProgram, SumsCostWhatTheirProgramsDo) {
  const auto programs = step_programs("mlp.onnx", "cuda:sm_90", "mse", 8);
  codegen::DeviceRates rates = codegen::kH200;
  rates.launch_seconds = 0;
  const auto costed = [&](const std::string& name) { return scale::Costed{&programs.at(name).program, programs.at(name).costs}; };
  const scale::RankStep step =
      scale::rank_step(costed(driver::kShardProgram), {}, costed(driver::kTrainingProgram), rates, scale::Segments::together);
  const auto seconds = [&](const std::string& name) {
    double sum = 0;
    for (const double one : scale::step_seconds(costed(name), rates)) sum += one;
    return sum;
  };
  // The programs add the loss up too.
  for (const auto& [level, shard] : {std::pair(0, 0), {1, 1}, {2, 3}})
    EXPECT_NEAR(scale::combine_seconds(step, shard) / seconds(driver::kCombineProgram + std::to_string(level)), 1, 0.02) << level;
  EXPECT_NEAR(scale::total_seconds(step, 8, step.gradient_bytes()) / seconds(driver::kTotalProgram), 1, 0.02);
}

class ScaleCommand : public testing::Test {
 protected:
  static Words scaling(const Words& more) {
    Words words{"scale", kFixtures + "mlp.onnx", "--loss", "mse", "--batch", "64", "--link", "1GB/s,5us"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static nlohmann::json points(const Words& more) {
    Words words = scaling(more);
    words.push_back("--json");
    const CommandResult result = run_gcomp(words);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result.exit_code == 0 ? nlohmann::json::parse(result.output).at("points") : nlohmann::json::array();
  }
  static void expect_refused(const CommandResult& result, const std::string& part) {
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::usage)) << result.errors;
    EXPECT_NE(result.errors.find(part), std::string::npos) << "no '" << part << "' in: " << result.errors;
  }

  TemporaryDirectory folder_;
};

TEST_F(ScaleCommand, Table) {
  const CommandResult result = run_gcomp(scaling({"--ranks", "1,8", "--link", "8:1Gbit/s,20us"}));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  for (const char* part : {"links: 1GB/s,5us within groups of 8, 0.125GB/s,20us between them",
                           "batch: 64 rows a rank, in 1 micro-batch", "efficiency", "100.0 %"})
    EXPECT_NE(result.output.find(part), std::string::npos) << part << " in " << result.output;
}

TEST_F(ScaleCommand, Json) {
  const nlohmann::json weak = points({"--ranks", "1,2,1024", "--micro-batches", "2"});
  ASSERT_EQ(weak.size(), 3u);
  EXPECT_EQ(weak[0].at("efficiency"), 1);
  EXPECT_EQ(weak[0].at("exchange_seconds"), 0);
  EXPECT_GT(weak[1].at("efficiency"), weak[2].at("efficiency"));
  EXPECT_EQ(weak[2].at("limit"), "latency");
  for (const nlohmann::json& point : weak)
    EXPECT_NEAR(point.at("step_seconds").get<double>(),
                point.at("compute_seconds").get<double>() + point.at("exposed_seconds").get<double>(), 1e-12);
  const nlohmann::json strong = points({"--ranks", "1,2,4", "--micro-batches", "4", "--scaling", "strong"});
  ASSERT_EQ(strong.size(), 3u);
  EXPECT_EQ(strong[2].at("micro_batches"), 1);
  EXPECT_EQ(strong[2].at("one_rank_seconds"), strong[0].at("step_seconds"));
  // One rank's measured time is what one rank then takes.
  EXPECT_NEAR(points({"--ranks", "1", "--step-time", "12.5ms"})[0].at("step_seconds").get<double>(), 12.5e-3, 1e-12);
  // Less on the wire, the same step otherwise.
  EXPECT_DOUBLE_EQ(points({"--ranks", "4", "--wire", "bf16"})[0].at("sent_bytes").get<double>() * 2,
                   points({"--ranks", "4"})[0].at("sent_bytes").get<double>());
  const Words rates{"--ranks", "1",       "--target",
                    "cpu",     "--rates", "copy=8GB/s,f64=1GFLOP/s,f32=1GFLOP/s,f16=1GFLOP/s,bf16=1GFLOP/s,launch=0us"};
  EXPECT_GT(points(rates)[0].at("step_seconds"), points({"--ranks", "1"})[0].at("step_seconds"));
}

TEST_F(ScaleCommand, BadInput) {
  const auto refused = [&](const Words& more, const std::string& part) { expect_refused(run_gcomp(scaling(more)), part); };
  refused({"--link", "2GB/s,1us"}, "--link 2GB/s,1us: the links within a group were given before");
  refused({"--link", "1:2GB/s,1us"}, "wanted 2 ranks or more in a group, found '1'");
  refused({"--link", "8:2GB,1us"}, "wanted a unit of 'B/s'");
  refused({"--link", "8:-2GB/s,1us"}, "wanted a number above 0");
  refused({"--link", "8:nan,1us"}, "wanted a number above 0");
  refused({"--link", "8:2GB/s,1"}, "wanted a unit of 's', 'ms', 'us' and 'ns', found ''");
  refused({"--link", "8:2GB/s"}, "wanted RATE,LATENCY, such as 450GB/s,3us");
  refused({"--rates", "h100"}, "'h100' is neither a device nor a rate");
  refused({"--rates", "h200,copy"}, "wanted copy=VALUE");
  refused({"--rates", "copy=1GB/s"}, "f64 is missing");
  refused({"--rates", "h200,f32=1GB/s"}, "wanted a unit of 'FLOP/s'");
  refused({"--ranks", "1,,2"}, "--ranks 1,,2");
  refused({"--ranks", "0"}, "--ranks 0: wanted numbers from 1 to");
  refused({"--zero", "3"}, "--zero 3: wanted 0 or 1");
  refused({"--contention", "2"}, "--contention 2: wanted a share from 0 to 1");
  refused({"--bucket-mib", "0"}, "--bucket-mib 0: wanted a number above 0");
  refused({"--micro-batches", "3"}, "--micro-batches 3: a batch of 64 rows is not cut into 3 equal parts");
  refused({"--micro-batches", "3", "--ranks", "1"}, "64");
  refused({"--scaling", "strong", "--micro-batches", "4", "--ranks", "8"}, "8");
  refused({"--target", "cpu"}, "wanted --rates of the device");
  refused({"--step-time", "3"}, "--step-time 3: wanted a unit");
  expect_refused(run_gcomp({"scale", kFixtures + "mlp.onnx", "--loss", "mse", "--batch", "8"}), "those within a group are missing");
  expect_refused(run_gcomp({"scale", kFixtures + "mlp.onnx", "--batch", "8"}), "--loss is missing");
}

// What two ranks receive from each other is half of what their gradients take, there and back, and what they say after each step.
TEST_F(ScaleCommand, ExchangesAreTimed) {
  if (on_another_device()) GTEST_SKIP() << "ranks are of the CPU";
  try {
    runtime::comm::find_mpi();
  } catch (const Error& error) { GTEST_SKIP() << error.what(); }
  if (runtime::cpu::find_program("mpirun").empty()) GTEST_SKIP() << "there is no mpirun";
  Words words{"train",
              kFixtures + "cnn.onnx",
              "--data",
              kFixtures + "cnn.npz",
              "--loss",
              "cross_entropy",
              "--batch",
              "16",
              "--steps",
              "6",
              "--threads",
              "1",
              "--json",
              "--ranks",
              "2",
              "--out",
              folder_ / "plain.onnx"};
  const CommandResult plain = run_gcomp(words);
  ASSERT_EQ(plain.exit_code, 0) << plain.errors;
  EXPECT_FALSE(nlohmann::json::parse(plain.output).contains("exchanges"));
  words.back() = folder_ / "timed.onnx";
  words.emplace_back("--time-exchanges");
  const CommandResult timed = run_gcomp(words);
  ASSERT_EQ(timed.exit_code, 0) << timed.errors;
  const nlohmann::json report = nlohmann::json::parse(timed.output), &exchanges = report.at("exchanges");
  EXPECT_EQ(report.at("weights_sha256"), nlohmann::json::parse(plain.output).at("weights_sha256"));

  const runtime::Program shard = step_programs("cnn.onnx", "cpu", "cross_entropy", 2).at(driver::kShardProgram).program;
  double gradients = 0, padded = 0;  // in eight parts of whole places (ir/bucket.h)
  for (const scale::ParameterUse& use : scale::parameter_uses(shard, scale::Segments::together)) {
    gradients += use.gradient_bytes;
    padded += static_cast<double>(ir::part_elements(static_cast<std::int64_t>(use.gradient_bytes) / 4, 8)) * 8 * 4;
  }
  EXPECT_GE(exchanges.at("calls"), 2 * 6);
  EXPECT_GE(exchanges.at("bytes"), 6 * gradients);
  EXPECT_LE(exchanges.at("bytes"), 6 * (padded + 4096))
      << "half of the gradients, half of the parameters, the loss, statistics of a few channels, a wish of each rank";
  EXPECT_GT(exchanges.at("moved_seconds"), 0);
  EXPECT_GT(exchanges.at("waited_seconds"), 0);
}

// One line for each exchange, and the sums; for the same step the simulator says the same.
TEST_F(ScaleCommand, PlanOfARank) {
  const Words words{
      "compile",  kFixtures + "mlp.onnx", "--train", "--loss", "mse",   "--batch", "32", "--micro-batches", "8", "--ranks", "4",
      "--target", "cuda:sm_90",           "--emit",  "plan",   "--json"};
  Words linked = words;
  linked.insert(linked.end(), {"--link", "1GB/s,5us"});
  const CommandResult result = run_gcomp(linked);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  std::string plan;
  const nlohmann::json report = nlohmann::json::parse(result.output);
  for (const nlohmann::json& file : report.at("files"))
    if (file.at("name") == "train_ranks.plan") plan = file.at("text");
  for (const char* part : {"a step of 4 ranks with 2 micro-batches each", "links                 1GB/s,5us between all ranks",
                           "from each rank", "one after another", "side by side", "efficiency", "all_to_all", "all_gather"})
    EXPECT_NE(plan.find(part), std::string::npos) << part << " in:\n" << plan;
  EXPECT_EQ(run_gcomp(words).output.find("train_ranks.plan"), std::string::npos);
  linked[15] = "--quiet";
  linked.back() = "1GB/s";
  expect_refused(run_gcomp(linked), "wanted RATE,LATENCY");
  linked = {"compile",  kFixtures + "mlp.onnx", "--train", "--loss", "mse",  "--batch",
            "32",       "--micro-batches",      "8",       "--emit", "plan", "--link",
            "1GB/s,5us"};
  expect_refused(run_gcomp(linked), "--link is for --emit plan of one of several ranks");
  linked.insert(linked.end(), {"--ranks", "2"});
  expect_refused(run_gcomp(linked), "gcomp knows no rates of cpu");
}

}  // namespace
}  // namespace gcomp::test
