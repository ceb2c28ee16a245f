#include "codegen/attention_shape.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "codegen/kernel_writer.h"
#include "ir/ops/table.h"

namespace gcomp::codegen {

using namespace gcomp::ir;

namespace {

constexpr std::ptrdiff_t kForwardResultMatrix = 4;  // of a gradient's operands

double count_of(std::int64_t n) { return static_cast<double>(n); }

/// Of each batch dimension that the kernels know, one number of those that are there; `absent` for the others.
template <class Number>
std::string batch_text(const AttentionShape& s, std::int64_t absent, Number number) {
  std::string text;
  for (std::size_t i = 0; i < kBatchDimensions; ++i) {
    const std::size_t missing = kBatchDimensions - s.batch.size();
    text += concat(i ? ", " : "{", i < missing ? absent : number(s.batch[i - missing]));
  }
  return text + "}";
}

}  // namespace

AttentionOperands attention_operands(const Node& node) {
  const auto at = [&](std::size_t i) { return i < node.operands.size() ? node.operands[i] : nullptr; };
  if (node.op == &ops::kAttention) return {.q = at(0), .k = at(1), .v = at(2), .mask = at(3), .kept = at(4)};
  return {.q = at(0),
          .k = at(1),
          .v = at(2),
          .mask = at(8),
          .kept = at(9),
          .dy = at(3),
          .y = at(4),
          .top = at(5),
          .sum = at(6),
          .delta = at(7)};
}

AttentionShape attention_shape(const Node& node, const Value* mask) {
  AttentionShape s{.matrices = matrices_of(node), .forward_result = {}, .scores = {}, .batch = {}};
  if (node.op == &ops::kAttentionGradient) {
    auto& operands = s.matrices.operands;
    s.forward_result = operands[kForwardResultMatrix];
    operands.erase(operands.begin() + kForwardResultMatrix);
  }
  Shape& scores = s.scores;
  scores = s.matrices.operands[0].shape;
  scores.back() = s.matrices.operands[1].shape[scores.size() - 2];
  const std::size_t rank = scores.size();
  s.queries = scores[rank - 2];
  s.keys = scores[rank - 1];
  s.width = s.matrices.operands[0].shape.back();
  s.value_width = s.matrices.operands[2].shape.back();
  std::vector<std::vector<std::int64_t>> all(1, std::vector<std::int64_t>(rank));
  if (mask) {
    all[0] = row_major_strides(mask->type.shape);
    for (std::size_t d = 0; d < rank; ++d) all[0][d] *= mask->type.shape[d] > 1;
  }
  for (const auto* list : {&s.matrices.operands, &s.matrices.results})
    for (const Matrix& m : *list) all.push_back(m.view_or_dense().strides);
  if (s.forward_result) all.push_back(s.forward_result->view_or_dense().strides);
  for (std::size_t d = 0; d + 2 < rank; ++d) {
    if (scores[d] == 1) continue;
    s.batches *= scores[d];
    BatchDimension next{scores[d], {}};
    for (const auto& strides : all) next.strides.push_back(strides[d]);
    const bool collapses =
        !s.batch.empty() && std::equal(next.strides.begin(), next.strides.end(), s.batch.back().strides.begin(),
                                       [&](std::int64_t inner, std::int64_t outer) { return outer == inner * scores[d]; });
    if (collapses) {
      next.extent *= s.batch.back().extent;
      s.batch.pop_back();
    }
    s.batch.push_back(std::move(next));
  }
  s.mask_query = all[0][rank - 2];
  s.mask_key = all[0][rank - 1];
  return s;
}

bool is_streamable(const Node& node) {
  if (node.op != &ops::kAttention && node.op != &ops::kAttentionGradient) return false;
  const AttentionOperands o = attention_operands(node);
  for (const Value* operand : node.operands)
    if (operand && operand->type.elements() == 0) return false;
  for (const Value* rows : {o.top, o.sum, o.delta})
    if (rows && rows->type.dtype != compute_type(o.q->type.dtype)) return false;
  const AttentionShape s = attention_shape(node, o.mask);
  const auto has_neighbours = [](const Matrix& m) { return m.shape.back() == 1 || m.view_or_dense().strides.back() == 1; };
  for (const auto* list : {&s.matrices.operands, &s.matrices.results})
    if (!std::ranges::all_of(*list, has_neighbours)) return false;
  return s.batch.size() <= kBatchDimensions;
}

double attention_pairs(const AttentionShape& s, bool causal) {
  const double all = count_of(s.queries) * count_of(s.keys), seen = std::min(count_of(s.queries), count_of(s.keys));
  return count_of(s.batches) *
         (causal ? std::min(all, seen * (seen + 1) / 2 + (count_of(s.queries) - seen) * count_of(s.keys)) : all);
}

std::string attention_extents_text(const AttentionShape& s) {
  return batch_text(s, 1, [](const BatchDimension& d) { return d.extent; });
}
std::string attention_strides_text(const AttentionShape& s, std::size_t of) {
  return batch_text(s, 0, [&](const BatchDimension& d) { return d.strides[of]; });
}
std::string attention_number_text(double x) {
  if (std::isnan(x)) return "gc_nan64";
  if (std::isinf(x)) return x > 0 ? "gc_infinity64" : "-gc_infinity64";
  char text[40];
  return std::string(text, std::to_chars(text, text + sizeof text, x).ptr);
}

Touched all_of(const Value* value) { return {value, static_cast<double>(value->type.bytes())}; }
Touched part_of(const Value* value, const Matrix& m) {
  double bytes = static_cast<double>(size_of(value->type.dtype));
  const StridedView view = m.view_or_dense();
  for (std::size_t d = 0; d < m.shape.size(); ++d) bytes *= view.strides[d] == 0 ? 1 : count_of(m.shape[d]);
  return {value, bytes};
}

}  // namespace gcomp::codegen
