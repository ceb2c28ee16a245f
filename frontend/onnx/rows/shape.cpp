// Operators that rearrange: reshape, transpose, concat, split, expand, tile, depth and space.
#include <algorithm>
#include <numeric>

#include "frontend/onnx/rows.h"
#include "ir/base/error.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

/// Of any one tensor: keeps products of dimensions that a file gives within 64 bits.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

Items shape_row(NodeContext& n) {
  const Shape& shape = n.shape(0);
  const auto rank = static_cast<std::int64_t>(shape.size());
  auto bound = [&](std::int64_t v) { return std::clamp(v < 0 ? v + rank : v, std::int64_t{0}, rank); };
  const std::int64_t start = bound(n.integer("start", 0)), end = std::max(start, bound(n.integer("end", rank)));
  return Tensor::of_integers(std::span(shape).subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(end - start)));
}

Items size_row(NodeContext& n) {
  const std::int64_t count = element_count(n.shape(0));
  return Tensor::of_integers(std::vector{count}).reshaped({});
}

/// A batch that the exporter baked into a shape follows the bound one, where nothing else fits.
void rebatch(NodeContext& n, Shape& to, std::int64_t count) {
  const auto& batch = n.state().rebatched;
  if (!batch || to.empty() || to[0] != batch->first) return;
  const bool open = std::count(to.begin(), to.end(), -1) > 0;
  if (open || element_count(to) == count) return;
  to[0] = batch->second;
  n.repair(concat("Reshape '", n.name(), "' has the file's batch of ", batch->first,
                  " in its shape: it follows the bound batch of ", batch->second));
}

Items reshape_row(NodeContext& n) {
  const Shape& from = n.shape(0);
  Shape to = n.has_attribute("shape") && n.inputs() < 2 ? n.integers("shape") : n.integers(1, "the shape");
  const bool zero_is_zero = n.flag("allowzero");
  if (std::count(to.begin(), to.end(), 0) == 0) rebatch(n, to, element_count(from));
  std::int64_t known = 1, free = -1;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i] == 0 && !zero_is_zero) {
      n.require(i < from.size(), "dimension ", i, " of the shape is 0, but the input has rank ", from.size());
      to[i] = from[i];
    }
    if (to[i] == -1) {
      n.require(free < 0, "the shape [", to_string(to), "] has -1 twice");
      free = static_cast<std::int64_t>(i);
      continue;
    }
    n.require(to[i] >= 0 && (to[i] == 0 || known <= kMaxElements / to[i]), "the shape has the dimension ", to[i]);
    known *= to[i];
  }
  const std::int64_t count = element_count(from);
  if (free >= 0) {
    n.require(known > 0 && count % known == 0, "[", to_string(from), "] has ", count, " elements, which the shape [", to_string(to),
              "] does not divide");
    to[static_cast<std::size_t>(free)] = count / known;
  } else {
    n.require(known == count, "[", to_string(from), "] has ", count, " elements, the shape [", to_string(to), "] has ", known);
  }
  return n.b().reshape(n.var(0), to);
}

Items flatten_row(NodeContext& n) {
  Var x = n.var(0);
  std::int64_t axis = n.integer("axis", 1), rows = 1, columns = 1;
  n.require(axis >= -x.rank() && axis <= x.rank(), "axis ", axis, " is out of range for rank ", x.rank());
  if (axis < 0) axis += x.rank();
  for (std::int64_t i = 0; i < x.rank(); ++i) (i < axis ? rows : columns) *= x.dim(i);
  return n.b().reshape(x, {rows, columns});
}

/// Axes from the attribute before opset 13, from input 1 since.
std::optional<Integers> axes_of(NodeContext& n) {
  if (n.has_attribute("axes")) return n.integers("axes", {});
  if (n.has(1)) return n.integers(1, "axes");
  return std::nullopt;
}

Items squeeze_row(NodeContext& n) {
  Var x = n.var(0);
  const auto given = axes_of(n);
  Integers axes;
  if (given) {
    axes = n.axes(*given, x.rank());
  } else {
    // A batch that is bound to 1 stays: the file means the dimensions that it fixes at 1.
    for (std::int64_t i = 0; i < x.rank(); ++i)
      if (x.dim(i) == 1 && !n.state().is_symbolic(n.input_name(0), i)) axes.push_back(i);
  }
  Shape shape;
  for (std::int64_t i = 0; i < x.rank(); ++i) {
    const bool drop = std::binary_search(axes.begin(), axes.end(), i);
    n.require(!drop || x.dim(i) == 1, "axis ", i, " of ", to_string(x.type()), " is not 1");
    if (!drop) shape.push_back(x.dim(i));
  }
  return n.b().reshape(x, shape);
}

Items unsqueeze_row(NodeContext& n) {
  Var x = n.var(0);
  const auto given = axes_of(n);
  n.require(given.has_value(), "axes are missing");
  const Integers axes = n.axes(*given, x.rank() + static_cast<std::int64_t>(given->size()));
  Shape shape = x.shape();
  for (std::int64_t axis : axes) shape.insert(shape.begin() + axis, 1);
  return n.b().reshape(x, shape);
}

Items transpose_row(NodeContext& n) {
  Var x = n.var(0);
  Integers permutation(x.shape().size());
  std::iota(permutation.rbegin(), permutation.rend(), 0);
  if (n.has_attribute("perm")) permutation = n.integers("perm");
  for (auto& axis : permutation) axis = n.axis(axis, x.rank());
  return n.b().transpose(x, permutation);
}

Items concat_row(NodeContext& n) {
  auto parts = n.vars();
  n.require(!parts.empty(), "found no operands");
  const std::int64_t axis = n.axis(n.integer("axis", 1), parts[0].rank());
  // Older exporters join an empty list [0] to anything.
  if (parts.size() > 1) std::erase_if(parts, [&](Var p) { return p.shape() == Shape{0} && axis == 0 && p.rank() == 1; });
  if (parts.empty()) return n.var(0);
  return n.b().concat(parts, axis);
}

Items split_into(NodeContext& n, Var x, std::int64_t axis, const Integers& sizes) {
  for (std::int64_t size : sizes) n.require(size >= 0 && size <= x.dim(axis), "a part has the size ", size, " of ", x.dim(axis));
  n.require(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) == x.dim(axis), "parts [", to_string(sizes),
            "] do not add up to axis ", axis, " of ", to_string(x.type()));
  std::vector<Var> parts;
  std::int64_t start = 0;
  for (std::int64_t size : sizes) {
    parts.push_back(n.b().slice_axis(x, axis, start, size));
    start += size;
  }
  return Items::of(parts);
}

Items split_row(NodeContext& n) {
  Var x = n.var(0);
  const std::int64_t axis = n.axis(n.integer("axis", 0), x.rank());
  if (n.has_attribute("split")) return split_into(n, x, axis, n.integers("split"));
  if (n.has(1)) return split_into(n, x, axis, n.integers(1, "the sizes of the parts"));
  const auto count = n.integer("num_outputs", static_cast<std::int64_t>(n.outputs()));
  n.require(count > 0 && count == static_cast<std::int64_t>(n.outputs()), count, " parts for ", n.outputs(), " outputs");
  const std::int64_t size = (x.dim(axis) + count - 1) / count;
  n.require(n.has_attribute("num_outputs") || x.dim(axis) % count == 0, "axis ", axis, " of ", to_string(x.type()),
            " does not split into ", count, " equal parts");
  Integers sizes(static_cast<std::size_t>(count), size);
  sizes.back() = x.dim(axis) - size * (count - 1);
  return split_into(n, x, axis, sizes);
}

Items expand_row(NodeContext& n) {
  const Shape shape = broadcast_shape(n, {n.shape(0), n.integers(1, "the shape")});
  return broadcast_to(n.var(0), shape);
}

Items tile_row(NodeContext& n) {
  Var x = n.var(0);
  const Integers repeats = n.integers(1, "the repeats");
  n.require(static_cast<std::int64_t>(repeats.size()) == x.rank(), repeats.size(), " repeats for ", to_string(x.type()));
  Shape spread, tiled;
  Integers axes;
  for (std::int64_t i = 0; i < x.rank(); ++i) {
    const std::int64_t count = repeats[static_cast<std::size_t>(i)];
    n.require(count >= 0 && count <= kMaxElements / std::max<std::int64_t>(1, x.dim(i)), "a repeat is ", count);
    spread.push_back(count);
    spread.push_back(x.dim(i));
    axes.push_back(2 * i + 1);
    tiled.push_back(count * x.dim(i));
  }
  return n.b().reshape(n.b().broadcast(x, spread, axes), tiled);
}

Items depth_to_space_row(NodeContext& n) {
  Var x = n.var(0);
  const std::int64_t block = n.integer("blocksize", 0);
  n.require(x.rank() == 4 && block > 0 && block < (1 << 15) && x.dim(1) % (block * block) == 0, "blocks of ", block, " do not fit ",
            to_string(x.type()));
  const std::int64_t depth = x.dim(1) / (block * block);
  const std::string mode = n.text("mode", "DCR");
  n.require(mode == "DCR" || mode == "CRD", "mode is '", mode, "', wanted DCR or CRD");
  const Shape split = mode == "DCR" ? Shape{x.dim(0), block, block, depth, x.dim(2), x.dim(3)}
                                    : Shape{x.dim(0), depth, block, block, x.dim(2), x.dim(3)};
  Var moved = n.b().transpose(n.b().reshape(x, split), mode == "DCR" ? Integers{0, 3, 4, 1, 5, 2} : Integers{0, 1, 4, 2, 5, 3});
  return n.b().reshape(moved, {x.dim(0), depth, x.dim(2) * block, x.dim(3) * block});
}

Items space_to_depth_row(NodeContext& n) {
  Var x = n.var(0);
  const std::int64_t block = n.integer("blocksize", 0);
  n.require(x.rank() == 4 && block > 0 && block < (1 << 15) && x.dim(2) % block == 0 && x.dim(3) % block == 0, "blocks of ", block,
            " do not fit ", to_string(x.type()));
  const std::int64_t rows = x.dim(2) / block, columns = x.dim(3) / block;
  Var moved = n.b().transpose(n.b().reshape(x, {x.dim(0), x.dim(1), rows, block, columns, block}), {0, 3, 5, 1, 2, 4});
  return n.b().reshape(moved, {x.dim(0), x.dim(1) * block * block, rows, columns});
}

constexpr Row kShapeRows[] = {
    {"Shape", 1, shape_row, false},
    {"Size", 1, size_row, false},
    {"Reshape", 1, reshape_row},
    {"Flatten", 1, flatten_row},
    {"Squeeze", 1, squeeze_row},
    {"Unsqueeze", 1, unsqueeze_row},
    {"Transpose", 1, transpose_row},
    {"Concat", 4, concat_row},
    {"Split", 2, split_row},
    {"Expand", 8, expand_row},
    {"Tile", 6, tile_row},
    {"DepthToSpace", 1, depth_to_space_row},
    {"SpaceToDepth", 1, space_to_depth_row},
};

}  // namespace

std::span<const Row> shape_rows() { return kShapeRows; }

}  // namespace gcomp::frontend
