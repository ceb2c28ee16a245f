#include "gcomp/driver/step_programs.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "gcomp/driver/saved_model.h"
#include "ir/base/error.h"
#include "ir/tree_sum.h"
#include "runtime/files/sha256.h"
#include "runtime/instruction_set.h"
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
    store_from_double(DType::i64, numbers.data(), shard,
                      rank.in_turns ? shard * rank.ranks + rank.rank : rank.rank * shards + shard);
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

StepPrograms::StepPrograms(runtime::Device& device, const std::shared_ptr<runtime::StateMemory>& states,
                           std::vector<StepProgram> programs, std::int64_t micro_batches, RankOf rank) {
  if (rank.ranks > 1) exchanges_beside_ = device.exchanges_beside();
  const runtime::Lane exchange_lane = overlaps() ? runtime::Lane::beside : runtime::Lane::main;
  const auto load = [&](std::string_view name, int shards, runtime::Lane lane = runtime::Lane::main) -> runtime::Executable* {
    const auto found = std::ranges::find(programs, name, [](const StepProgram& p) -> std::string_view { return p.program.name; });
    if (found == programs.end()) return nullptr;
    check_user(shards == 1 || found->program.outputs.empty(), "program '", name, "' gives outputs, wanted none of a shard");
    owned_.push_back(device.load(std::move(found->program), states, found->binary, shards, lane));
    programs.erase(found);
    all_.push_back(owned_.back().get());
    return all_.back();
  };
  const auto load_exchange = [&](const std::string& name, std::vector<runtime::Executable*>& loaded) {
    runtime::Executable* executable = load(name, 1, exchange_lane);
    if (executable) loaded.push_back(executable);
    return executable != nullptr;
  };
  const auto require = [&](const std::string& name, int shards) {
    runtime::Executable* executable = load(name, shards);
    check_user(executable, "program '", name, "' is missing");
    return executable;
  };
  reader_ = step_ = require(kTrainingProgram, 1);
  const int shards = static_cast<int>(micro_batches) / rank.ranks;
  if (micro_batches > 1) {
    runtime::Executable* lock_step = load(kLockStepProgram, 1);
    reader_ = lock_step ? lock_step : require(kShardProgram, shards);
    count_ = load(kCountProgram, shards);
    const ir::OwnNodes nodes = ir::own_nodes(micro_batches, rank.ranks, rank.in_turns);
    node_shards_ = lock_step ? 1 : static_cast<int>(nodes.shards);
    const int levels = ir::tree_levels(node_shards_);
    for (int level = 0; level < levels; ++level) combine_.push_back(require(concat(kCombineProgram, level), 1));
    const auto count = static_cast<std::size_t>(nodes.count);
    // Several ranks may add the last node up for each exchange; a node of one shard is that shard's sum.
    for (std::size_t node = 0; node + 1 < count; ++node) totals_.push_back(require(total_program(node, count), 1));
    runtime::Executable* last_total = load(total_program(count - 1, count), 1);
    if (last_total) totals_.push_back(last_total);
    for (std::size_t i = 0; rank.ranks > 1; ++i) {
      const bool adds = load_exchange(concat(kBucketTotalProgram, i), exchanges_);
      if (!load_exchange(concat(kExchangeProgram, i), exchanges_)) break;
      check_user(adds || last_total || levels == 0, "program '", kBucketTotalProgram, i, "' is missing");
    }
    check_user(rank.ranks > 1 || last_total, "program '", total_program(count - 1, count), "' is missing");
    check_user(rank.ranks == 1 || !exchanges_.empty(), "program '", kExchangeProgram, "0' is missing");
    while (load_exchange(concat(kGatherProgram, gathers_.size()), gathers_)) {}  // none where each rank updates all
    check_user(rank.ranks == 1 || !count_ || load_exchange(kCountExchangeProgram, count_exchange_), "program '",
               kCountExchangeProgram, "' is missing");
  }
  check_user(programs.empty(), "program '", programs.empty() ? "" : programs[0].program.name, "' is none of a step in ",
             micro_batches, " micro-batches");
  require_shared(*step_, all_);
  require_shared(*reader_, all_);
  ports_ = step_ports(step_->program());
  data_ = data_inputs(reader_->program());
  if (overlaps()) plan_beside();
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

std::vector<Followers> StepPrograms::followers() const {
  const auto numbers = [&](const std::vector<runtime::Executable*>& programs) {
    std::vector<std::size_t> places;
    for (const runtime::Executable* program : programs)
      places.push_back(static_cast<std::size_t>(std::ranges::find(all_, program) - all_.begin()));
    return places;
  };
  std::vector<runtime::Executable*> last_shard = {reader_};
  if (std::ssize(totals_) * node_shards_ == reader_->shards()) last_shard.push_back(totals_.back());
  std::vector<Followers> followers = {{numbers(last_shard), numbers(exchanges_)}, {numbers({step_}), numbers(gathers_)}};
  if (count_) followers.push_back({numbers({count_}), numbers(count_exchange_)});
  return followers;
}

std::vector<OverlapPlan> StepPrograms::overlap() const {
  std::vector<const runtime::Program*> programs;
  for (const runtime::Executable* program : all_) programs.push_back(&program->program());
  return plan_overlap(programs, followers(), exchanges_beside_);
}

void StepPrograms::plan_beside() {
  const std::vector<OverlapPlan> plans = overlap();
  for (std::size_t i = 0; i < all_.size(); ++i) {
    runtime::BesidePlan plan;
    for (const auto& [program, after] : plans[i].starts) plan.starts.push_back({all_[program], after});
    for (const auto& [program, before] : plans[i].needs) plan.needs.push_back({all_[program], before});
    all_[i]->plan_beside(std::move(plan));
  }
}

void StepPrograms::run_exchanges(std::span<runtime::Executable* const> programs) {
  if (overlaps()) return;
  for (runtime::Executable* program : programs) program->run();
}

/// What is counted, labels for the most part, lies in two places.
void StepPrograms::fill_counted() {
  for (const auto& [to, from] : counted_) std::ranges::copy(reader_->next_input(from), count_->input(to).begin());
}

std::int64_t StepPrograms::runs_of(const runtime::Executable& program) const {
  const auto combine = std::ranges::find(combine_, &program);
  if (combine == combine_.end()) return program.shards();
  return ir::additions_at(static_cast<int>(combine - combine_.begin()), {reader_->shards() / node_shards_, node_shards_});
}

void StepPrograms::run() {
  if (reader_ == step_) return step_->run();
  const int shards = reader_->shards();
  if (count_) {
    fill_counted();
    for (int shard = 0; shard < count_->shards(); ++shard) count_->run_shard(shard);
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

void time_products(runtime::Device& device, std::span<const StepProgram> programs) {
  for (const StepProgram& one : programs) device.time_products(one.program, one.binary);
}

bool has_tiles(std::string_view device) {
  return device.find(concat(", ", runtime::shown_name(runtime::InstructionSet::amx))) != device.npos;
}

std::optional<bool> sums_by_tiles(const StepPrograms& programs, std::string_view device) {
  return multiply(programs, DType::bf16) ? std::optional(has_tiles(device)) : std::nullopt;
}

std::string other_tiles_text(bool tiles) {
  return concat("products of bf16 were summed ", tiles ? "without AMX, which is used" : "by AMX, which is not used",
                " here: bits may differ from here on; with --portable-bits from the start they do not");
}

bool multiply(const StepPrograms& programs, DType dtype) {
  const auto multiplies = [dtype](const runtime::Step& step) {
    return runtime::visit_step(
        step, [](const runtime::KernelLaunch&) { return false; },
        [&](const runtime::MatmulCall& call) { return call.dtype == dtype; },
        [&](const runtime::ConvolutionCall& call) { return call.dtype == dtype; },
        [](const runtime::AttentionCall&) { return false; }, [](const runtime::CollectiveCall&) { return false; });
  };
  return std::ranges::any_of(programs.all(),
                             [&](const runtime::Executable* one) { return std::ranges::any_of(one->program().steps, multiplies); });
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
