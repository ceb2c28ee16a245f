#include "ir/attention_views.h"

#include <algorithm>
#include <numeric>

#include "ir/ops/table.h"

namespace gcomp::ir {
namespace {

struct Sizes {
  Shape batch;
  std::int64_t queries, keys, width, value_width;

  Shape matrix(std::int64_t rows, std::int64_t columns) const {
    Shape shape = batch;
    shape.insert(shape.end(), {rows, columns});
    return shape;
  }
};

Sizes sizes_of(std::span<const TensorType> operands, const Attributes& attributes) {
  const std::vector<std::int64_t>& given = attributes.integers("sizes");
  if (!given.empty()) {
    const auto last = given.end() - 4;
    return {{given.begin(), last}, last[0], last[1], last[2], last[3]};
  }
  const Shape &q = operands[0].shape, &v = operands[2].shape;
  return {{q.begin(), q.end() - 2}, q[q.size() - 2], v[v.size() - 2], q.back(), v.back()};
}

AttentionMatrix matrix_of(std::string_view view_name, Shape shape, std::size_t value, const Attributes& attributes) {
  AttentionMatrix made{.view_name = view_name, .shape = std::move(shape), .value = value, .view = {}};
  if (const std::vector<std::int64_t>& view = attributes.integers(view_name); !view.empty())
    made.view = StridedView{view[0], {view.begin() + 1, view.end()}};
  return made;
}

std::vector<AttentionMatrix> operands_of(const Sizes& s, const Attributes& attributes) {
  return {matrix_of("q_view", s.matrix(s.queries, s.width), 0, attributes),
          matrix_of("k_view", s.matrix(s.keys, s.width), 1, attributes),
          matrix_of("v_view", s.matrix(s.keys, s.value_width), 2, attributes)};
}

}  // namespace

std::vector<std::int64_t> StridedView::as_attribute() const {
  std::vector<std::int64_t> numbers{offset};
  numbers.insert(numbers.end(), strides.begin(), strides.end());
  return numbers;
}

StridedView AttentionMatrix::view_or_dense() const { return view ? *view : StridedView{0, row_major_strides(shape)}; }

Tensor AttentionMatrix::positions() const {
  const StridedView from = view_or_dense();
  Tensor positions(DType::i64, shape);
  Shape index(shape.size());
  for (std::int64_t& position : positions.as<std::int64_t>()) {
    position = std::inner_product(index.begin(), index.end(), from.strides.begin(), from.offset);
    next_index(index, shape);
  }
  return positions;
}

AttentionMatrices attention_matrices(std::span<const TensorType> operands, const Attributes& attributes) {
  const Sizes s = sizes_of(operands, attributes);
  return {operands_of(s, attributes),
          {matrix_of("y_view", s.matrix(s.queries, s.value_width), 0, attributes)},
          s.matrix(s.queries, s.keys)};
}

AttentionMatrices attention_gradient_matrices(std::span<const TensorType> operands, const Attributes& attributes) {
  const Sizes s = sizes_of(operands, attributes);
  AttentionMatrices made{operands_of(s, attributes), {}, s.matrix(s.queries, s.keys)};
  made.operands.push_back(matrix_of("dy_view", s.matrix(s.queries, s.value_width), 3, attributes));
  const std::vector<std::int64_t>& results = attributes.integers("results");
  constexpr std::string_view kViews[] = {"dq_view", "dk_view", "dv_view"};
  for (std::size_t i = 0; i < std::size(kViews); ++i)
    made.results.push_back(
        matrix_of(kViews[i], made.operands[i].shape, results.empty() ? i : static_cast<std::size_t>(results[i]), attributes));
  return made;
}

AttentionMatrices attention_matrices_of(const Node& node) {
  const Attributes attributes = with_defaults(*node.op, node.attributes);
  const std::vector<TensorType> operands = types_of(node.operands);
  return node.op == &ops::kAttention ? attention_matrices(operands, attributes) : attention_gradient_matrices(operands, attributes);
}

std::vector<std::int64_t> dimensions_by_stride(const Shape& shape, const StridedView& view) {
  std::vector<std::int64_t> dimensions(shape.size());
  std::iota(dimensions.begin(), dimensions.end(), 0);
  std::stable_sort(dimensions.begin(), dimensions.end(), [&](std::int64_t a, std::int64_t b) {
    return view.strides[static_cast<std::size_t>(a)] > view.strides[static_cast<std::size_t>(b)];
  });
  return dimensions;
}

std::optional<ElementRuns> runs_of(const Shape& shape, const StridedView& view) {
  ElementRuns runs{.offset = view.offset};
  std::vector<std::int64_t> dimensions = dimensions_by_stride(shape, view);
  std::reverse(dimensions.begin(), dimensions.end());
  for (const std::int64_t d : dimensions) {
    const std::int64_t extent = shape[static_cast<std::size_t>(d)], stride = view.strides[static_cast<std::size_t>(d)];
    if (extent == 1) continue;
    if (runs.count == 1 && stride == runs.length) {
      runs.length *= extent;
    } else if (runs.count == 1 && stride > runs.length) {
      runs.apart = stride;
      runs.count = extent;
    } else if (runs.count > 1 && stride == runs.apart * runs.count) {
      runs.count *= extent;
    } else {
      return std::nullopt;
    }
  }
  return runs;
}

bool fill_once(std::span<const AttentionMatrix> matrices, std::int64_t elements) {
  std::vector<ElementRuns> all;
  for (const AttentionMatrix& m : matrices) {
    const std::optional<ElementRuns> runs = runs_of(m.shape, m.view_or_dense());
    if (!runs) return false;
    all.push_back(*runs);
  }
  std::sort(all.begin(), all.end(), [](const ElementRuns& a, const ElementRuns& b) { return a.offset < b.offset; });
  std::int64_t next = 0;
  for (const ElementRuns& runs : all) {
    if (runs.offset != next || runs.count != all[0].count || (runs.count > 1 && runs.apart * runs.count != elements)) return false;
    next += runs.length;
  }
  return next * all[0].count == elements;
}

}  // namespace gcomp::ir
