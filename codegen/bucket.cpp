#include "codegen/bucket.h"

#include "ir/bucket.h"

namespace gcomp::codegen {

using namespace gcomp::ir;

namespace {

/// One launch in the making.
class BucketLaunch {
 public:
  BucketLaunch(ProgramBuilder& program, const Node& node, const std::string& text, int threads)
      : program_(program), launch_{program.kernels().add_text(text), {}, {.blocks = 0, .threads = threads}, 0, origin_of(node)} {}

  void add(std::vector<int> buffers, std::int64_t elements, std::int64_t bytes) {
    const std::int64_t tasks = quotient_up(elements, kBucketBlock);
    launch_.segments.push_back({.buffers = std::move(buffers), .extent = elements, .tasks = tasks});
    launch_.grid.blocks += tasks;
    cost_.bytes += static_cast<double>(bytes);
  }
  void finish() {
    if (!launch_.segments.empty()) program_.add_step(std::move(launch_), cost_);
  }

 private:
  ProgramBuilder& program_;
  runtime::KernelLaunch launch_;
  StepCost cost_{.dtype = DType::f32};
};

/// The part of a bucket or an array that holds so many elements from an element on.
int part_of(ProgramBuilder& program, const Value* whole, std::int64_t first, std::int64_t elements) {
  const DType dtype = whole->type.dtype;
  return program.buffer_at(program.buffer_of(whole), first * static_cast<std::int64_t>(size_of(dtype)), {dtype, {elements}});
}

}  // namespace

void add_bucket(ProgramBuilder& program, const Node& node, const BucketTexts& texts) {
  const Value* bucket = node.result();
  const std::int64_t rows = bucket->type.shape[0];
  const std::vector<TensorType> types = types_of(node.operands);
  const BucketLayout layout = bucket_layout(types, rows, with_defaults(*node.op, node.attributes).integer("parts"));
  const auto size = static_cast<std::int64_t>(size_of(bucket->type.dtype));
  BucketLaunch copy(program, node, texts.copy, texts.threads), zero(program, node, texts.zero, texts.threads);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::size_t i = 0; i < types.size(); ++i) {
      const BucketRange range = range_in_row(layout, i, row, types[i].elements());
      const std::int64_t elements = range.end - range.begin;
      if (elements > 0)
        copy.add({part_of(program, node.operands[i], range.begin, elements), part_of(program, bucket, range.place, elements)},
                 elements, 2 * elements * size);
      if (elements == layout.shares[i]) continue;
      // What is zeroed begins where a buffer may, and so before the array's end; the copy comes after.
      const std::int64_t from = elements / kBucketPlace * kBucketPlace, rest = layout.shares[i] - from;
      zero.add({part_of(program, bucket, range.place + from, rest)}, rest, rest * size);
    }
  zero.finish();
  copy.finish();
}

void add_unbucket(ProgramBuilder& program, const Node& node, const BucketTexts& texts) {
  const Value* bucket = node.operands[0];
  const std::int64_t rows = bucket->type.shape[0];
  const std::vector<TensorType> types = types_of(node.results);
  const BucketLayout layout = bucket_layout(types, rows, with_defaults(*node.op, node.attributes).integer("parts"));
  const auto size = static_cast<std::int64_t>(size_of(bucket->type.dtype));
  BucketLaunch copy(program, node, texts.copy, texts.threads);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::size_t i = 0; i < types.size(); ++i) {
      const BucketRange range = range_in_row(layout, i, row, types[i].elements());
      const std::int64_t elements = range.end - range.begin;
      if (elements > 0)
        copy.add({part_of(program, bucket, range.place, elements), part_of(program, node.results[i], range.begin, elements)},
                 elements, 2 * elements * size);
    }
  copy.finish();
}

}  // namespace gcomp::codegen
