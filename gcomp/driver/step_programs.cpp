#include "gcomp/driver/step_programs.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "gcomp/communicator.h"
#include "gcomp/driver/saved_model.h"
#include "ir/base/error.h"
#include "ir/tree_sum.h"
#include "passes/training/sharded_state.h"
#include "runtime/files/sha256.h"
#include "runtime/serialize.h"

namespace gcomp::driver {
namespace {

/// Each shard of the rank knows its number, which is counted over all ranks.
void number_shards(runtime::Executable& executable, int shards, RankOf rank) {
  const std::optional<std::size_t> port = find_port(executable.program().inputs, Role::shard);
  if (!port) return;
  check_user(executable.input_type(*port) == (TensorType{DType::i64, {shards}}), "program '", executable.program().name,
             "' takes the number of a shard as ", to_string(executable.input_buffer(*port).type), ", wanted i64[",
             shards / executable.shards(), "]");
  const std::span<std::byte> numbers = executable.input(*port);
  for (int shard = 0; shard < shards; ++shard)
    store_from_double(DType::i64, numbers.data(), shard, rank.in_turns ? shard * rank.ranks + rank.rank : rank.rank * shards + shard);
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

RankOf rank_of(const runtime::DeviceOptions& options, int zero) {
  const Communicator* communicator = options.communicator;
  if (!communicator) return {};
  return {communicator->rank(), communicator->size(), passes::takes_turns(static_cast<passes::Sharding>(zero))};
}

StepPrograms::StepPrograms(runtime::Device& device, const std::shared_ptr<runtime::StateMemory>& states,
                           std::vector<StepProgram> programs, std::int64_t micro_batches, RankOf rank) {
  const auto load = [&](std::string_view name, int shards) -> runtime::Executable* {
    const auto found = std::ranges::find(programs, name, [](const StepProgram& p) -> std::string_view { return p.program.name; });
    if (found == programs.end()) return nullptr;
    check_user(shards == 1 || found->program.outputs.empty(), "program '", name, "' gives outputs, wanted none of a shard");
    owned_.push_back(device.load(std::move(found->program), states, found->binary, shards));
    programs.erase(found);
    all_.push_back(owned_.back().get());
    return all_.back();
  };
  const auto require = [&](const std::string& name, int shards) {
    runtime::Executable* executable = load(name, shards);
    check_user(executable, "program '", name, "' is missing");
    return executable;
  };
  const auto load_numbered = [&](const char* name, std::vector<runtime::Executable*>& loaded) {
    while (runtime::Executable* next = load(concat(name, loaded.size()), 1)) loaded.push_back(next);
  };
  reader_ = step_ = require(kTrainingProgram, 1);
  const int shards = static_cast<int>(micro_batches) / rank.ranks;
  if (micro_batches > 1) {
    runtime::Executable* lock_step = load(kLockStepProgram, 1);
    reader_ = lock_step ? lock_step : require(kShardProgram, shards);
    count_ = load(kCountProgram, shards);
    const ir::OwnNodes nodes = rank.in_turns ? ir::OwnNodes{1, shards} : ir::own_nodes(micro_batches, rank.ranks);
    node_shards_ = lock_step ? 1 : static_cast<int>(nodes.shards);
    const int levels = ir::tree_levels(node_shards_);
    for (int level = 0; level < levels; ++level) combine_.push_back(require(concat(kCombineProgram, level), 1));
    const auto count = static_cast<std::size_t>(nodes.count);
    for (std::size_t node = 0; node < count; ++node) totals_.push_back(require(total_program(node, count), 1));
    if (rank.ranks > 1) {
      exchanges_.push_back(require(concat(kExchangeProgram, 0), 1));
      load_numbered(kExchangeProgram, exchanges_);
      load_numbered(kGatherProgram, gathers_);  // none where each rank updates all
    }
    if (rank.ranks > 1 && count_) count_exchange_ = require(kCountExchangeProgram, 1);
  }
  check_user(programs.empty(), "program '", programs.empty() ? "" : programs[0].program.name, "' is none of a step in ",
             micro_batches, " micro-batches");
  require_shared(*step_, all_);
  require_shared(*reader_, all_);
  ports_ = step_ports(step_->program());
  data_ = data_inputs(reader_->program());
  number_shards(*reader_, shards, rank);
  if (!count_) return;
  number_shards(*count_, shards, rank);
  for (const std::size_t i : data_inputs(count_->program())) {
    const std::string& name = count_->input_buffer(i).name;
    const std::size_t same = reader_->input_index(name);
    check_user(count_->input_type(i) == reader_->input_type(same), "program '", count_->program().name, "' reads '", name, "' as ",
               to_string(count_->input_type(i)), ", the shards read it as ", to_string(reader_->input_type(same)));
    counted_.emplace_back(i, same);
  }
}

/// What is counted, labels for the most part, lies in two places.
void StepPrograms::fill_counted() {
  for (const auto& [to, from] : counted_) std::ranges::copy(reader_->next_input(from), count_->input(to).begin());
}

std::int64_t StepPrograms::runs_of(const runtime::Executable& program) const {
  const auto combine = std::ranges::find(combine_, &program);
  if (combine == combine_.end()) return program.shards();
  const std::int64_t half = std::int64_t{1} << (combine - combine_.begin());  // after shards half - 1, 3 half - 1, ... but the last
  return (node_shards_ - 1 + half) / (2 * half) * std::ssize(totals_);
}

void StepPrograms::run() {
  if (totals_.empty()) return step_->run();
  const int shards = reader_->shards();
  if (count_) {
    fill_counted();
    for (int shard = 0; shard < count_->shards(); ++shard) count_->run_shard(shard);
    if (count_exchange_) count_exchange_->run();
  }
  for (int shard = 0; shard < shards; ++shard) {
    reader_->run_shard(shard);
    const int of_node = shard % node_shards_;
    runtime::Executable* sums = of_node + 1 == node_shards_
                                    ? totals_[static_cast<std::size_t>(shard / node_shards_)]
                                    : combine_[static_cast<std::size_t>(std::countr_one(static_cast<unsigned>(of_node)))];
    sums->run();
  }
  for (runtime::Executable* exchange : exchanges_) exchange->run();
  step_->run();
  for (runtime::Executable* gather : gathers_) gather->run();
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
