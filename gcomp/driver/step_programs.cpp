#include "gcomp/driver/step_programs.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "gcomp/communicator.h"
#include "gcomp/driver/saved_model.h"
#include "ir/base/error.h"
#include "ir/tree_sum.h"
#include "runtime/files/sha256.h"
#include "runtime/serialize.h"
#include "runtime/shared_use.h"

namespace gcomp::driver {
namespace {

/// Each shard knows its number, which is counted over all ranks.
void number_shards(runtime::Executable& executable, RankOf rank) {
  const std::optional<std::size_t> port = find_port(executable.program().inputs, Role::shard);
  if (!port) return;
  check_user(executable.input_type(*port) == (TensorType{DType::i64, {executable.shards()}}), "program '",
             executable.program().name, "' takes the number of a shard as ", to_string(executable.input_buffer(*port).type),
             ", wanted i64[1]");
  const std::span<std::byte> numbers = executable.input(*port);
  for (int shard = 0; shard < executable.shards(); ++shard)
    store_from_double(DType::i64, numbers.data(), shard, rank.rank * executable.shards() + shard);
}

bool has_state(const runtime::Program& program, std::string_view name) {
  return std::ranges::any_of(program.states, [&](const runtime::State& state) {
    return program.buffers[static_cast<std::size_t>(state.buffer)].name == name;
  });
}

/// What one program of a step leaves to another is known to both.
void require_shared(const runtime::Executable& executable, std::span<runtime::Executable* const> all) {
  const runtime::Program& program = executable.program();
  for (const runtime::State& state : program.states) {
    if (state.role != runtime::StateRole::scratch) continue;
    const std::string& name = program.buffers[static_cast<std::size_t>(state.buffer)].name;
    const bool shared = std::ranges::any_of(
        all, [&](const runtime::Executable* other) { return other != &executable && has_state(other->program(), name); });
    check_user(shared, "program '", program.name, "' has '", name, "', which no other program of the step has");
  }
}

}  // namespace

RankOf rank_of(const runtime::DeviceOptions& options) {
  const Communicator* communicator = options.communicator;
  return communicator ? RankOf{communicator->rank(), communicator->size()} : RankOf{};
}

StepPrograms::StepPrograms(runtime::Device& device, const std::shared_ptr<runtime::StateMemory>& states,
                           std::vector<StepProgram> programs, std::int64_t micro_batches, RankOf rank) {
  const auto load = [&](std::string_view name, int shards, runtime::Lane lane = runtime::Lane::main) -> runtime::Executable* {
    const auto found = std::ranges::find(programs, name, [](const StepProgram& p) -> std::string_view { return p.program.name; });
    if (found == programs.end()) return nullptr;
    check_user(shards == 1 || found->program.outputs.empty(), "program '", name, "' gives outputs, wanted none of a shard");
    owned_.push_back(device.load(std::move(found->program), states, found->binary, shards, lane));
    programs.erase(found);
    all_.push_back(owned_.back().get());
    return all_.back();
  };
  const auto require = [&](const std::string& name, int shards, runtime::Lane lane = runtime::Lane::main) {
    runtime::Executable* executable = load(name, shards, lane);
    check_user(executable, "program '", name, "' is missing");
    return executable;
  };
  if (rank.ranks > 1 && device.exchanges_beside()) lane_ = runtime::Lane::beside;
  reader_ = step_ = require(kTrainingProgram, 1);
  if (micro_batches > 1) {
    const int shards = static_cast<int>(micro_batches) / rank.ranks;
    reader_ = require(kShardProgram, shards);
    count_ = load(kCountProgram, shards);
    const ir::OwnNodes nodes = ir::own_nodes(micro_batches, rank.ranks);
    node_shards_ = static_cast<int>(nodes.shards);
    const int levels = ir::tree_levels(nodes.shards);
    for (int level = 0; level < levels; ++level) combine_.push_back(require(concat(kCombineProgram, level), 1));
    const auto count = static_cast<std::size_t>(nodes.count), own_totals = rank.ranks > 1 ? count - 1 : count;
    for (std::size_t node = 0; node < own_totals; ++node) totals_.push_back(require(total_program(node, count), 1));
    for (std::size_t i = 0; rank.ranks > 1; ++i) {
      if (levels > 0)
        if (runtime::Executable* total = load(concat(kBucketTotalProgram, i), 1, lane_)) exchanges_.push_back(total);
      runtime::Executable* exchange = load(concat(kExchangeProgram, i), 1, lane_);
      if (!exchange) break;
      exchanges_.push_back(exchange);
    }
    check_user(rank.ranks == 1 || !exchanges_.empty(), "program '", kExchangeProgram, "0' is missing");
    while (runtime::Executable* gather = load(concat(kGatherProgram, gathers_.size()), 1, lane_)) gathers_.push_back(gather);
    if (rank.ranks > 1 && count_) count_exchange_ = {require(kCountExchangeProgram, 1, lane_)};
  }
  check_user(programs.empty(), "program '", programs.empty() ? "" : programs[0].program.name, "' is none of a step in ",
             micro_batches, " micro-batches");
  require_shared(*step_, all_);
  require_shared(*reader_, all_);
  ports_ = step_ports(step_->program());
  data_ = data_inputs(reader_->program());
  if (lane_ == runtime::Lane::beside) plan_beside();
  number_shards(*reader_, rank);
  if (!count_) return;
  number_shards(*count_, rank);
  for (const std::size_t i : data_inputs(count_->program())) {
    const std::string& name = count_->input_buffer(i).name;
    const std::size_t same = reader_->input_index(name);
    check_user(count_->input_type(i) == reader_->input_type(same), "program '", count_->program().name, "' reads '", name, "' as ",
               to_string(count_->input_type(i)), ", the shards read it as ", to_string(reader_->input_type(same)));
    counted_.emplace_back(i, same);
  }
}

/// By the states that programs share: each exchange begins after the last step before it that touches what it reads or writes, and
/// is done before the first step after it that does.
void StepPrograms::plan_beside() {
  std::vector<std::pair<runtime::Executable*, std::set<std::string>>> beside;
  for (const auto* programs : {&count_exchange_, &exchanges_, &gathers_})
    for (runtime::Executable* program : *programs) beside.emplace_back(program, runtime::StateUse(program->program()).all());
  for (runtime::Executable* program : all_) {
    if (std::ranges::find(beside, program, [](const auto& one) { return one.first; }) != beside.end()) continue;
    const runtime::StateUse use(program->program());
    runtime::BesidePlan plan;
    const auto& followers = program == count_ ? count_exchange_ : program == reader_ ? exchanges_ : gathers_;
    std::size_t after = 0;
    for (const auto& [other, states] : beside) {
      plan.needs.push_back({other, use.first(states)});
      const bool follows =
          (program == count_ || program == reader_ || program == step_) && std::ranges::count(followers, other) > 0;
      if (!follows) continue;
      if (const auto last = use.last(states)) after = std::max(after, *last + 1);
      plan.starts.push_back({other, after});
    }
    program->plan_beside(std::move(plan));
  }
}

void StepPrograms::run_exchanges(std::span<runtime::Executable* const> programs) {
  if (lane_ == runtime::Lane::beside) return;
  for (runtime::Executable* program : programs) program->run();
}

/// What is counted, labels for the most part, lies in two places.
void StepPrograms::fill_counted() {
  for (const auto& [to, from] : counted_) std::ranges::copy(reader_->next_input(from), count_->input(to).begin());
}

std::int64_t StepPrograms::runs_of(const runtime::Executable& program) const {
  const auto combine = std::ranges::find(combine_, &program);
  if (combine == combine_.end()) return program.shards();
  const std::int64_t half = std::int64_t{1} << (combine - combine_.begin());  // after shards half - 1, 3 half - 1, ... but the last
  return (node_shards_ - 1 + half) / (2 * half) * (reader_->shards() / node_shards_);
}

void StepPrograms::run() {
  if (reader_ == step_) return step_->run();
  const int shards = reader_->shards();
  if (count_) {
    fill_counted();
    for (int shard = 0; shard < shards; ++shard) count_->run_shard(shard);
    run_exchanges(count_exchange_);
  }
  for (int shard = 0; shard < shards; ++shard) {
    reader_->run_shard(shard);
    const int of_node = shard % node_shards_, node = shard / node_shards_;
    if (of_node + 1 < node_shards_) combine_[static_cast<std::size_t>(std::countr_one(static_cast<unsigned>(of_node)))]->run();
    else if (node < std::ssize(totals_)) totals_[static_cast<std::size_t>(node)]->run();
  }
  run_exchanges(exchanges_);
  step_->run();
  run_exchanges(gathers_);
}

void StepPrograms::wait(int age) {
  if (count_) count_->wait(age);
  reader_->wait(age);
  step_->wait(age);
}

std::string digest_of(const StepPrograms& programs) {
  runtime::Sha256 digest;
  for (const runtime::Executable* program : programs.all()) digest.add(runtime::serialize(program->program()));
  return digest.digest();
}

std::vector<StepProgram> step_programs(const runtime::Artifact& artifact) {
  std::vector<StepProgram> programs;
  for (const runtime::Program& program : artifact.programs)
    if (is_step_program(program.name)) programs.push_back({program, kernel_binary(artifact, program)});
  return programs;
}

}  // namespace gcomp::driver
