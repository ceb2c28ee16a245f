#include "codegen/cpu/target.h"

#include "codegen/bucket.h"
#include "codegen/cpu/attention/attention.h"
#include "codegen/cpu/bucket.h"
#include "codegen/cpu/emit.h"
#include "codegen/cpu/square_sums.h"
#include "codegen/library_calls.h"
#include "codegen/program_builder.h"
#include "codegen/square_sums.h"
#include "ir/ops/table.h"

namespace gcomp::codegen::cpu {
namespace {

using namespace gcomp::ir;

/// The built-in product is as fast with any distance between rows, columns and matrices while the elements of either a row or a
/// column are neighbours.
bool takes_view(const Node& product, const StridedView& view) {
  const DType dtype = product.result()->type.dtype;
  if (product.op != &ops::kMatmul || (dtype != DType::f32 && dtype != DType::f64 && dtype != DType::bf16)) return false;
  const std::size_t rank = view.shape.size();
  const std::int64_t rows = view.shape[rank - 2], columns = view.shape[rank - 1];
  const std::int64_t row = view.strides[rank - 2], column = view.strides[rank - 1];
  return columns == 1 || column == 1 || rows == 1 || row == 1;
}

/// Pairs of bf16 are multiplied by an instruction where the processor has it, in products of matrices and most convolutions; by
/// tiles in nearly all of them.
bool widens(const Node& contraction) {
  if (contraction.result()->type.dtype != DType::bf16) return true;
  if (contraction.op == &ops::kMatmul) return false;
  const std::optional<runtime::Step> call = library_call(contraction, [](const Value*) { return 0; });
  const auto* convolution = call ? std::get_if<runtime::ConvolutionCall>(&*call) : nullptr;
  return !convolution || !(is_matrix_product(*convolution) || sums_pairs(*convolution) || takes_tiles(*convolution));
}

TargetInfo info(const runtime::Target&) {
  TargetInfo info;
  info.legal_composite = gains_from_streaming;
  info.half_attention = [](const Node& attention, DType half) { return half == DType::bf16 && gains_from_streaming(attention); };
  info.widens = widens;
  info.sums_squares = true;
  info.copies_buckets = true;
  info.takes_view = takes_view;
  return info;
}

bool add_contraction(ProgramBuilder& program, const Node& node) {
  const DType dtype = node.result()->type.dtype;
  if (!is_float(dtype) || ((dtype == DType::f16 || dtype == DType::bf16) && widens(node))) return false;
  std::optional<runtime::Step> call = library_call(node, program.buffers());
  if (call) program.add_step(*std::move(call));
  return call.has_value();
}

bool add_product(ProgramBuilder&, const Node&) { return false; }

void add_attention(ProgramBuilder& program, const Node& node) {
  const AttentionLaunch launch = attention_launch(node);
  runtime::Segment segment{.buffers = {}, .tasks = launch.tasks};
  for (const Value* value : launch.values) segment.buffers.push_back(program.buffer_of(value));
  program.add_step(runtime::KernelLaunch{program.kernels().add_text(launch.text), {std::move(segment)}, {}, 0, origin_of(node)},
                   launch.cost);
}

void add_composite(ProgramBuilder& program, const Node& node) {
  if (node.op == &ops::kAttention || node.op == &ops::kAttentionGradient) return add_attention(program, node);
  if (node.op == &ops::kSquareSums) return add_square_sums(program, node, square_sums_text(node.operands[0]->type.dtype), 1);
  if (node.op == &ops::kBucket) return add_bucket(program, node, bucket_texts(node.result()->type.dtype));
  if (node.op == &ops::kUnbucket) return add_unbucket(program, node, bucket_texts(node.operands[0]->type.dtype));
  throw InternalError(concat(node.op->name, " is no legal composite of the CPU"));
}

}  // namespace

constexpr Target kTarget{.prelude_file = "prelude.h",
                         .info = info,
                         .shared_bytes = nullptr,
                         .emit = emit,
                         .prelude = prelude,
                         .add_contraction = add_contraction,
                         .add_product = add_product,
                         .add_composite = add_composite};

}  // namespace gcomp::codegen::cpu
