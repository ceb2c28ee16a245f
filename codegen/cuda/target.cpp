#include "codegen/cuda/target.h"

#include <cstdlib>

#include "codegen/attention_shape.h"
#include "codegen/bucket.h"
#include "codegen/cuda/attention/attention.h"
#include "codegen/cuda/bucket.h"
#include "codegen/cuda/emit.h"
#include "codegen/cuda/product_parts.h"
#include "codegen/cuda/products/convolution_traffic.h"
#include "codegen/cuda/products/products.h"
#include "codegen/cuda/square_sums.h"
#include "codegen/program_builder.h"
#include "codegen/rebase.h"
#include "codegen/square_sums.h"
#include "ir/ops/table.h"

namespace gcomp::codegen::cuda {
namespace {

using namespace gcomp::ir;

/// What cuBLASLt computes in one call, as fast as of dense matrices: elements of a row or a column side by side, everything else at
/// multiples of the 16 bytes that its fast kernels load, and a batch that is evenly spaced.
bool takes_view(const Node& product, const StridedView& view) {
  const DType dtype = product.result()->type.dtype;
  if (product.op != &ops::kMatmul || !is_float(dtype)) return false;
  const std::size_t rank = view.shape.size();
  const std::int64_t width = 16 / static_cast<std::int64_t>(size_of(dtype));
  const auto is_placed = [&](std::size_t along, std::size_t across) {
    return (view.shape[along] == 1 || view.strides[along] == 1) &&
           (view.shape[across] == 1 || (view.strides[across] >= view.shape[along] && view.strides[across] % width == 0));
  };
  if (!is_placed(rank - 1, rank - 2) && !is_placed(rank - 2, rank - 1)) return false;
  std::int64_t apart = 0, matrices = 1;
  for (std::size_t d = rank - 2; d-- > 0;) {
    if (view.shape[d] == 1) continue;
    if (matrices > 1 && view.strides[d] != apart * matrices) return false;
    if (matrices == 1) apart = view.strides[d];
    matrices *= view.shape[d];
  }
  return apart % width == 0 && view.offset % width == 0;
}

/// Elements that the library may sum within a product. On an H200 a product of 32768 rows took 91 us more with the sum of 2304
/// columns (1.7 TB/s of what is summed), 37 us with 768; a kernel of its own reads twice as fast, and costs a launch or two.
constexpr std::int64_t kMostSummed = 4 << 20;

const TensorType& summed(const LibraryEpilogue& epilogue, const std::vector<TensorType>& operands) {
  return operands[epilogue.kind == runtime::EpilogueKind::bias_gradient_a ? 0 : 1];
}

TargetInfo info(const runtime::Target& target) {
  TargetInfo info;
  info.takes_view = takes_view;
  info.buffer_alignment = 256;  // what cudaMalloc aligns to, and the widest copies want
  info.legal_composite = takes_attention;
  info.sums_squares = true;
  info.copies_buckets = true;
  info.pixel_products = true;
  info.half_row_elements = 8;  // 16 bytes
  info.parallel_sums = 256;    // groups of 64 neighbouring sums: two blocks each, four for every processor of a large GPU
  info.row_strips = 512;       // a block each: twice what a large GPU runs at once of kernels that take 128 registers a thread
  info.dear_launches = true;
  info.computes_epilogue = [gelu = library_has_gelu(target)](const LoopNest& nest, const std::vector<TensorType>& operands,
                                                             const std::vector<TensorType>& results) {
    const auto found = library_epilogue(nest, operands, results);
    if (!found || (is_gelu(found->kind) && !gelu)) return false;
    return !runtime::is_bias_gradient(found->kind) || summed(*found, operands).elements() <= kMostSummed;
  };
  return info;
}

/// Half of what a multiprocessor has, without what the system and a kernel's own arrays take (CUDA C++ Programming Guide, technical
/// specifications for each compute capability).
std::int64_t shared_bytes(const runtime::Target& target) {
  constexpr std::int64_t kOwn = 2 << 10;
  const int architecture = architecture_of(target);
  const std::int64_t all = architecture < 80                          ? 64
                           : architecture == 80 || architecture == 87 ? 164
                           : architecture >= 90 && architecture < 120 ? 228
                                                                      : 100;
  return (all << 10) / 2 - kOwn;
}

bool add_contraction(ProgramBuilder& program, const Node& node) {
  if (!is_float(node.result()->type.dtype)) return false;
  std::optional<runtime::Step> step = library_call(node, program.buffers());
  if (!step) return false;
  // Kernels stand beside the library's call, for machines without the library and for what it refuses.
  const auto generate = [&](auto& call) {
    call.generated = generate_product(call, architecture_of(program.target()), program.kernels());
    return !call.generated.launches.empty();
  };
  const bool generated = runtime::visit_step(
      *step, [](runtime::KernelLaunch&) { return true; }, [&](runtime::MatmulCall& call) { return generate(call); },
      [&](runtime::ConvolutionCall& call) {
        call.generated_tf32 = generate_tf32_product(call, architecture_of(program.target()), program.kernels());
        call.packing = generate_packing(call, program.kernels());
        return generate(call);
      },
      [](runtime::AttentionCall&) { return true; }, [](runtime::CollectiveCall&) { return true; });
  if (!generated) return false;
  StepCost cost = program.cost_of_step(*step);
  if (const auto* call = std::get_if<runtime::ConvolutionCall>(&*step)) {
    cost.generated = convolution_traffic(*call, call->generated, cost.flops, /*tf32=*/false);
    cost.generated_tf32 = convolution_traffic(*call, call->generated_tf32, cost.flops, /*tf32=*/true);
  }
  program.add_step(*std::move(step), std::move(cost));
  return true;
}

/// All results of a product as the end of its own kernel.
ProductEpilogue product_epilogue(ProgramBuilder& program, const Node& node, const ProductParts& parts) {
  std::vector<TensorType> types;
  std::vector<bool> movable;
  for (const Value* operand : parts.operands) {
    types.push_back(operand->type);
    movable.push_back(operand != parts.sums && program.is_movable(operand));
  }
  const Rebased rebased = rebase(parts.whole, types, movable);
  ProductEpilogue epilogue{epilogue_text(rebased.nest, rebased.operands, types_of(node.results)), {}};
  for (std::size_t i = 1; i < parts.operands.size(); ++i)
    epilogue.buffers.push_back(
        program.buffer_at(program.buffer_of(parts.operands[i]), rebased.byte_offsets[i], rebased.operands[i]));
  for (const Value* result : node.results) epilogue.buffers.push_back(program.buffer_of(result));
  return epilogue;
}

bool add_product(ProgramBuilder& program, const Node& node) {
  const ProductParts parts = take_apart(node, program.target());
  runtime::MatmulCall call = matmul_call(node, parts.sums, program.buffers());
  const std::optional<ProductEpilogue> epilogue =
      fits_product_kernel(parts) ? std::optional(product_epilogue(program, node, parts)) : std::nullopt;
  call.generated = generate_product(call, architecture_of(program.target()), program.kernels(), epilogue ? &*epilogue : nullptr);
  if (call.generated.launches.empty()) return false;
  call.epilogue = {.library = {},
                   .after = program.launch_of(node, parts.after, parts.operands, parts.results),
                   .generated = epilogue.has_value()};
  if (parts.library) call.epilogue->library = over_buffers(*parts.library, node, program.buffers());
  program.add_step(std::move(call));
  return true;
}

void add_attention(ProgramBuilder& program, const Node& node) {
  std::vector<runtime::KernelLaunch> launches;
  std::vector<StepCost> costs;
  const int architecture = architecture_of(program.target());
  bool reads_delta = false;
  for (const AttentionLaunch& launch : attention_launches(node, architecture)) {
    reads_delta = reads_delta || std::ranges::count(launch.values, attention_operands(node).delta) > 0;
    runtime::Segment segment;
    for (const Value* value : launch.values) segment.buffers.push_back(program.buffer_of(value));
    runtime::KernelLaunch made{
        program.kernels().add_text(launch.kernel.text), {std::move(segment)}, launch.kernel.grid, 0, origin_of(node)};
    if (launch.tf32) made.tf32 = runtime::GridKernel{program.kernels().add_text(launch.tf32->text), launch.tf32->grid};
    launches.push_back(std::move(made));
    costs.push_back(launch.cost);
  }
  if (std::optional<runtime::AttentionCall> call = attention_call(node, program.buffers(), architecture)) {
    // A library sums delta by itself, and so does one kernel.
    if (const Value* delta = attention_operands(node).delta; auto taken = delta ? program.take_back(delta, node) : std::nullopt) {
      if (reads_delta) {
        launches.insert(launches.begin(), std::move(taken->launch));
        costs.insert(costs.begin(), std::move(taken->cost));
      }
    }
    call->generated = std::move(launches);
    StepCost cost = program.cost_of_step(*call);
    for (const StepCost& one : costs) {
      cost.generated.push_back(one.work.traffic);
      cost.generated_bytes.push_back(one.bytes);
    }
    return program.add_step(*std::move(call), std::move(cost));
  }
  for (std::size_t i = 0; i < launches.size(); ++i) program.add_step(std::move(launches[i]), std::move(costs[i]));
}

void add_composite(ProgramBuilder& program, const Node& node) {
  if (node.op == &ops::kSquareSums)
    return add_square_sums(program, node, square_sums_text(node.operands[0]->type.dtype), kSquareSumThreads);
  if (node.op == &ops::kBucket) return add_bucket(program, node, bucket_texts(node.result()->type.dtype));
  if (node.op == &ops::kUnbucket) return add_unbucket(program, node, bucket_texts(node.operands[0]->type.dtype));
  add_attention(program, node);
}

std::string prelude_text() { return prelude(); }

}  // namespace

int architecture_of(const runtime::Target& target) {
  return std::atoi(target.architecture.c_str() + std::string_view("sm_").size());
}

bool library_has_gelu(const runtime::Target& target) { return architecture_of(target) >= 90; }

constexpr Target kTarget{.prelude_file = "prelude.cuh",
                         .rates = &kH200,
                         .info = info,
                         .shared_bytes = shared_bytes,
                         .emit = emit,
                         .prelude = prelude_text,
                         .add_contraction = add_contraction,
                         .add_product = add_product,
                         .add_composite = add_composite};

}  // namespace gcomp::codegen::cuda
