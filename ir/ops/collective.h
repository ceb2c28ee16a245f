// Ops between ranks: copies of one graph that run side by side, each on data of its own. The primitive ones only move bytes, so
// that a sum over ranks is added by a kernel, in an order that the number of ranks does not change.
//
// `ranks` is the size of the group; `group` names it, where ranks are in several. `bucket` and `unbucket` turn many arrays into
// one and back, for one exchange in the place of many. Gradients are those of the sum of all ranks' losses.
#pragma once

#include <string>
#include <vector>

#include "ir/bucket.h"
#include "ir/ops/shown.h"
#include "ir/ops/table.h"
#include "ir/ops/view.h"
#include "ir/text/parse.h"
#include "ir/tree_sum.h"

namespace gcomp::ir::ops {

inline constexpr AttributeSpec kCollectiveAttributes[] = {AttributeSpec::of("ranks", AttributeType::integer),
                                                          AttributeSpec::optional("group", AttributeType::text, 0, "data")};
inline constexpr AttributeSpec kRootedAttributes[] = {AttributeSpec::of("ranks", AttributeType::integer),
                                                      AttributeSpec::of("root", AttributeType::integer),
                                                      AttributeSpec::optional("group", AttributeType::text, 0, "data")};
inline constexpr AttributeSpec kBucketAttributes[] = {AttributeSpec::of("rows", AttributeType::integer),
                                                      AttributeSpec::optional("parts", AttributeType::integer, 1)};
inline constexpr AttributeSpec kUnbucketAttributes[] = {AttributeSpec::of("shapes", AttributeType::text),
                                                        AttributeSpec::optional("parts", AttributeType::integer, 1)};
inline constexpr Sample kRowSamples[] = {{"f64[1,3]", "{ranks=1}"}, {"f64[1]", "{ranks=1}"}};
inline constexpr Sample kWholeSamples[] = {{"f64[2,3]", "{ranks=1}"}, {"f64[]", "{ranks=1}"}};
inline constexpr Sample kRootedSamples[] = {{"f64[2,3]", "{ranks=1, root=0}"}};
inline constexpr Sample kBucketSamples[] = {
    {"f64[3,4] f64[5] f64[]", "{rows=2}"}, {"f64[8]", "{rows=1}"}, {"f64[130] f64[2]", "{rows=1, parts=2}"}};
inline constexpr Sample kUnbucketSamples[] = {{"f64[2,192]", "{shapes=\"[3,4] [5] []\"}"},
                                              {"f64[1,384]", "{parts=2, shapes=\"[130] [2]\"}"}};

inline std::int64_t ranks_of(const InferContext& c) {
  const std::int64_t ranks = c.attributes.integer("ranks");
  c.require(ranks >= 1, ranks, " ranks, wanted 1 or more");
  return ranks;
}
/// Operands with a row for each rank.
inline void require_row_each(const InferContext& c) {
  const std::int64_t ranks = ranks_of(c);
  const TensorType& x = c.operand(0);
  c.require(x.rank() >= 1 && x.shape[0] == ranks, "operand 0 is ", shown(x), ", wanted a row for each of ", ranks, " ranks");
}
inline Attributes group_of(const Attributes& attributes) {
  return {{"ranks", attributes.integer("ranks")}, {"group", attributes.text("group")}};
}

/// The sum over the first dimension, by the tree of ir/tree_sum.h.
inline Var tree_sum_of_rows(Builder& b, Var rows) {
  const Shape shape(rows.shape().begin() + 1, rows.shape().end());
  std::vector<Var> parts;
  for (std::int64_t r = 0; r < rows.shape()[0]; ++r) parts.push_back(b.reshape(b.slice_axis(rows, 0, r, 1), shape));
  return tree_sum(std::span<const Var>(parts));
}

constexpr OpDef kAllToAll{
    .name = "all_to_all",
    .summary = "row r goes to rank r, and row r of the result is what rank r sent",
    .kind = Kind::collective,
    .operands = 1,
    .attributes = kCollectiveAttributes,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          require_row_each(c);
          return std::vector{c.operand(0)};
        },
    .gradient = [](GradientContext& g) { g.add(0, g.builder().apply(kAllToAll, {g.dy()}, group_of(g.attributes()))); },
    .samples = kRowSamples,
};
constexpr OpDef kAllGather{
    .name = "all_gather",
    .summary = "row r of the result is the operand of rank r",
    .kind = Kind::collective,
    .operands = 1,
    .attributes = kCollectiveAttributes,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          TensorType type = c.operand(0);
          type.shape.insert(type.shape.begin(), ranks_of(c));
          return std::vector{type};
        },
    .gradient = [](GradientContext& g) { g.add(0, g.builder().apply(kReduceScatter, {g.dy()}, group_of(g.attributes()))); },
    .samples = kWholeSamples,
};
/// MPI's and NCCL's broadcast; that name is of the view.
constexpr OpDef kBroadcastFrom{
    .name = "broadcast_from",
    .summary = "the operand of rank `root`, on every rank",
    .kind = Kind::collective,
    .operands = 1,
    .attributes = kRootedAttributes,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          const std::int64_t ranks = ranks_of(c), root = c.attributes.integer("root");
          c.require(root >= 0 && root < ranks, "root ", root, " of ", ranks, " ranks");
          return std::vector{c.operand(0)};
        },
    .no_gradient = "the root's is the sum of all, and no rank knows whether it is the root",
    .samples = kRootedSamples,
};
constexpr OpDef kReduceScatter{
    .name = "reduce_scatter",
    .summary = "on rank r the sum of all ranks' rows r, by the tree of ir/tree_sum.h",
    .kind = Kind::composite,
    .operands = 1,
    .attributes = kCollectiveAttributes,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          require_row_each(c);
          TensorType type = c.operand(0);
          type.shape.erase(type.shape.begin());
          return std::vector{type};
        },
    .expand =
        [](ExpandContext& e) {
          Builder& b = e.builder();
          return std::vector{tree_sum_of_rows(b, b.apply(kAllToAll, {e.operand(0)}, group_of(e.attributes()))).value};
        },
    .gradient = [](GradientContext& g) { g.add(0, g.builder().apply(kAllGather, {g.dy()}, group_of(g.attributes()))); },
    .samples = kRowSamples,
};
constexpr OpDef kAllReduce{
    .name = "all_reduce",
    .summary = "the sum of all ranks' operands, by the tree of ir/tree_sum.h",
    .kind = Kind::composite,
    .operands = 1,
    .attributes = kCollectiveAttributes,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          ranks_of(c);
          return std::vector{c.operand(0)};
        },
    .expand =
        [](ExpandContext& e) {
          Builder& b = e.builder();
          const Attributes group = group_of(e.attributes());
          const std::int64_t ranks = group.integer("ranks"), elements = e.operand(0).type().elements();
          const std::int64_t part = quotient_up(elements, ranks);
          Var rows = b.pad(b.reshape(e.operand(0), {elements}), {0}, {ranks * part - elements}, 0);
          rows = b.apply(kReduceScatter, {b.reshape(rows, {ranks, part})}, group);
          rows = b.reshape(b.apply(kAllGather, {rows}, group), {ranks * part});
          return std::vector{b.reshape(b.slice_axis(rows, 0, 0, elements), e.result_type().shape).value};
        },
    .gradient = [](GradientContext& g) { g.add(0, g.builder().apply(kAllReduce, {g.dy()}, group_of(g.attributes()))); },
    .samples = kWholeSamples,
};

constexpr OpDef kBucket{
    .name = "bucket",
    .summary = "many arrays in equal rows, each with `parts` equal parts of every array; zeros behind an array's end",
    .kind = Kind::composite,
    .operands = -1,
    .attributes = kBucketAttributes,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          const std::int64_t rows = c.attributes.integer("rows"), parts = c.attributes.integer("parts");
          c.require(rows >= 1, rows, " rows, wanted 1 or more");
          c.require(parts >= 1, parts, " parts, wanted 1 or more");
          for (std::size_t i = 1; i < c.operands.size(); ++i)
            c.require(c.operand(i).dtype == c.operand(0).dtype, "operand ", i, " is ", shown(c.operand(i)), ", the first ",
                      shown(c.operand(0)), "; wanted one dtype");
          return std::vector{TensorType{c.operand(0).dtype, {rows, bucket_layout(c.operands, rows, parts).row_elements}}};
        },
    .expand =
        [](ExpandContext& e) {
          Builder& b = e.builder();
          const std::int64_t rows = e.result_type().shape[0];
          std::vector<Var> arrays;
          for (std::size_t i = 0; e.has(i); ++i) {
            const TensorType type = e.operand(i).type();
            const std::int64_t share = bucket_layout(std::span(&type, 1), rows, e.attributes().integer("parts")).row_elements,
                               elements = type.elements();
            const Var padded = b.pad(b.reshape(e.operand(i), {elements}), {0}, {rows * share - elements}, 0);
            arrays.push_back(b.reshape(padded, {rows, share}));
          }
          return std::vector{b.concat(std::move(arrays), 1).value};
        },
    .gradient =
        [](GradientContext& g) {
          const std::vector<Var> arrays = g.builder().apply_many(
              kUnbucket, {g.dy()},
              {{"shapes", bucket_shapes(types_of(g.node().operands))}, {"parts", g.attributes().integer("parts")}});
          for (std::size_t i = 0; i < arrays.size(); ++i) g.add(i, arrays[i]);
        },
    .samples = kBucketSamples,
};

/// The arrays of an unbucket node, whose shapes are "[3,4] [5] []".
inline std::vector<TensorType> bucketed_types(const Attributes& attributes, DType dtype) {
  const std::string_view text = attributes.text("shapes");
  std::vector<TensorType> types;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    types.push_back(parse_type(concat(name_of(dtype), text.substr(begin, end - begin))));
    begin = end + 1;
  }
  return types;
}
constexpr OpDef kUnbucket{
    .name = "unbucket",
    .summary = "the arrays of which a bucket was made",
    .kind = Kind::composite,
    .operands = 1,
    .results = -1,
    .attributes = kUnbucketAttributes,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          const TensorType& bucket = c.operand(0);
          const std::vector<TensorType> types = bucketed_types(c.attributes, bucket.dtype);
          c.require(!types.empty(), "no arrays");
          const std::int64_t parts = c.attributes.integer("parts");
          c.require(parts >= 1, parts, " parts, wanted 1 or more");
          c.require(bucket.rank() == 2 && bucket.shape[0] >= 1 &&
                        bucket.shape[1] == bucket_layout(types, bucket.shape[0], parts).row_elements,
                    "operand 0 is ", shown(bucket), ", no bucket of ", c.attributes.text("shapes"));
          return types;
        },
    .expand =
        [](ExpandContext& e) {
          Builder& b = e.builder();
          const Var bucket = e.operand(0);
          const std::int64_t rows = bucket.shape()[0];
          const std::vector<TensorType> types = bucketed_types(e.attributes(), bucket.dtype());
          const BucketLayout layout = bucket_layout(types, rows, e.attributes().integer("parts"));
          std::vector<Value*> arrays;
          for (std::size_t i = 0; i < types.size(); ++i) {
            const Var shares = b.slice_axis(bucket, 1, layout.places[i], layout.shares[i]);
            const Var flat = b.reshape(shares, {rows * layout.shares[i]});
            arrays.push_back(b.reshape(b.slice_axis(flat, 0, 0, types[i].elements()), types[i].shape).value);
          }
          return arrays;
        },
    .gradient =
        [](GradientContext& g) {
          std::vector<Var> parts;
          for (std::size_t i = 0; i < g.node().results.size(); ++i) parts.push_back(g.dy(i));
          const Attributes attributes{{"rows", g.operand(0).shape()[0]}, {"parts", g.attributes().integer("parts")}};
          g.add(0, g.builder().apply(kBucket, std::move(parts), attributes));
        },
    .samples = kUnbucketSamples,
};

inline constexpr const OpDef* kCollectiveOps[] = {&kAllToAll,  &kAllGather, &kBroadcastFrom, &kReduceScatter,
                                                  &kAllReduce, &kBucket,    &kUnbucket};

}  // namespace gcomp::ir::ops
