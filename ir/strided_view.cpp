#include "ir/strided_view.h"

#include <algorithm>
#include <numeric>

#include "ir/base/error.h"

namespace gcomp::ir {

namespace {

std::string listed(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) text += concat(text.empty() ? "" : ",", number);
  return "(" + text + ")";
}

}  // namespace

StridedView StridedView::dense(Shape shape) {
  std::vector<std::int64_t> strides = row_major_strides(shape);
  return {std::move(shape), std::move(strides)};
}

Index StridedView::position(const std::vector<Index>& at) const {
  Index position(offset);
  for (std::size_t d = 0; d < shape.size(); ++d) position = position + at[d] * strides[d];
  return position;
}

Tensor StridedView::positions() const {
  Tensor positions(DType::i64, shape);
  Shape index(shape.size());
  for (std::int64_t& position : positions.as<std::int64_t>()) {
    position = std::inner_product(index.begin(), index.end(), strides.begin(), offset);
    next_index(index, shape);
  }
  return positions;
}

std::string to_string(const StridedView& view) {
  return concat(listed(view.shape), ":", listed(view.strides), view.offset ? concat("+", view.offset) : "");
}

const StridedView* view_at(const Views& views, std::size_t matrix) {
  return matrix < views.size() && views[matrix] ? &*views[matrix] : nullptr;
}

std::string find_violation(const StridedView& view, std::int64_t elements) {
  if (view.shape.size() != view.strides.size())
    return concat("has ", view.strides.size(), " strides for ", view.shape.size(), " dimensions");
  if (view.shape.size() > kLargestRank) return concat("has rank ", view.shape.size(), ", the limit is ", kLargestRank);
  if (std::any_of(view.shape.begin(), view.shape.end(), [](std::int64_t extent) { return extent < 1; })) return "has no elements";
  try {
    element_count(view.shape);  // a view of stride 0 is as large as it says
  } catch (const SizeError&) { return "has more than 2^48 elements"; }
  std::int64_t last = view.offset;
  bool inside = last >= 0 && last < elements;
  for (std::size_t d = 0; inside && d < view.shape.size(); ++d) {
    const std::int64_t steps = view.shape[d] - 1;
    inside = view.strides[d] >= 0 && (steps == 0 || view.strides[d] <= (elements - 1 - last) / steps);
    if (inside) last += steps * view.strides[d];
  }
  return inside ? "" : concat("leaves the ", elements, " elements of its value");
}

std::vector<std::int64_t> dimensions_by_stride(const StridedView& view) {
  std::vector<std::int64_t> dimensions(view.shape.size());
  std::iota(dimensions.begin(), dimensions.end(), 0);
  std::stable_sort(dimensions.begin(), dimensions.end(), [&](std::int64_t a, std::int64_t b) {
    return view.strides[static_cast<std::size_t>(a)] > view.strides[static_cast<std::size_t>(b)];
  });
  return dimensions;
}

std::optional<ElementRuns> runs_of(const StridedView& view) {
  ElementRuns runs{.offset = view.offset};
  std::vector<std::int64_t> dimensions = dimensions_by_stride(view);
  std::reverse(dimensions.begin(), dimensions.end());
  for (const std::int64_t d : dimensions) {
    const std::int64_t extent = view.shape[static_cast<std::size_t>(d)], stride = view.strides[static_cast<std::size_t>(d)];
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

bool fill_once(std::span<const StridedView> views, std::int64_t elements) {
  std::vector<ElementRuns> all;
  for (const StridedView& view : views) {
    const std::optional<ElementRuns> runs = runs_of(view);
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
