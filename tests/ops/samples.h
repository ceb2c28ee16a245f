// The samples of the op table as concrete cases: what every test that loops over the table runs on.
#pragma once

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/ops/table.h"
#include "ir/text/parse.h"

namespace gcomp::tests {

struct OpCase {
  const ir::OpDef* op = nullptr;
  std::vector<TensorType> operands;
  ir::Attributes attributes;
  double low = -2, high = 2;
  std::string label;
};

/// As a parameter of tests, which GoogleTest copies several times for each test at every start.
using SharedCase = std::shared_ptr<const OpCase>;
inline void PrintTo(const SharedCase& c, std::ostream* out) { *out << c->label; }

inline std::vector<SharedCase> shared_cases(std::vector<OpCase> cases) {
  std::vector<SharedCase> shared;
  for (OpCase& c : cases) shared.push_back(std::make_shared<const OpCase>(std::move(c)));
  return shared;
}

inline std::vector<TensorType> types_from(std::string_view text) {
  std::vector<TensorType> types;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    types.push_back(ir::parse_type(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return types;
}

/// The case that a pointwise op has without saying so: operands f64[2,3], or the dtype that its typing wants.
inline OpCase pointwise_case(const ir::OpDef& op) {
  const bool bits = op.name.substr(0, 4) == "bit_" || op.name.substr(0, 6) == "shift_";
  const bool counters = op.typing == ir::PointwiseTyping::cast && !op.gradient;  // random numbers are drawn from i64
  const DType dtype = bits                                        ? DType::i32
                      : counters                                  ? DType::i64
                      : op.typing == ir::PointwiseTyping::logical ? DType::boolean
                                                                  : DType::f64;
  OpCase c{&op,     std::vector(static_cast<std::size_t>(op.operands), TensorType{dtype, {2, 3}}),
           {},      op.low,
           op.high, std::string(op.name)};
  if (op.typing == ir::PointwiseTyping::select) c.operands[0].dtype = DType::boolean;
  if (op.typing == ir::PointwiseTyping::cast) c.attributes.set("to", DType::f64);
  return c;
}

/// Every case of every op but constant, update and the kernels, which have no samples.
inline std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  for (const ir::OpDef* op : ir::ops::kTable) {
    if (op->kind == ir::Kind::pointwise) cases.push_back(pointwise_case(*op));
    int number = 0;
    for (const ir::Sample& sample : op->samples)
      cases.push_back({op, types_from(sample.operands), ir::parse_attributes(*op, sample.attributes), sample.low, sample.high,
                       concat(op->name, "_", number++)});
  }
  return cases;
}

/// One node on inputs x0, x1, ...; its results are the outputs.
inline ir::Graph graph_of(const OpCase& c) {
  ir::Graph graph(c.label);
  std::vector<ir::Value*> operands;
  for (std::size_t i = 0; i < c.operands.size(); ++i) operands.push_back(graph.add_input(c.operands[i], concat("x", i)));
  graph.outputs() = graph.append(*c.op, operands, c.attributes, "", {"y0", "y1", "y2"})->results;
  return graph;
}

/// Floats uniform in [low, high]; integers are whole numbers of that range; bools are tossed.
inline Tensor random_tensor(const TensorType& type, double low, double high, std::mt19937& random) {
  Tensor tensor(type);
  std::uniform_real_distribution<double> real(low, high);
  std::uniform_int_distribution<int> whole(static_cast<int>(std::ceil(low)), static_cast<int>(std::floor(high)));
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    tensor.set(i, is_float(type.dtype)           ? real(random)
                  : type.dtype == DType::boolean ? static_cast<double>(random() & 1)
                                                 : whole(random));
  return tensor;
}

}  // namespace gcomp::tests
