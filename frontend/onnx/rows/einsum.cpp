// Einsum: two operands at a time, one batched matrix product each.
#include <algorithm>
#include <cctype>
#include <map>

#include "frontend/onnx/rows.h"
#include "ir/base/error.h"

namespace gcomp::frontend {
namespace {

/// A tensor whose axes are named by letters.
struct Labelled {
  Var x;
  std::string labels;
};

/// Sums out the labels that only this operand has and nobody wants; repeated labels must not occur.
Labelled without(Builder& b, Labelled t, const std::string& wanted) {
  Integers axes;
  std::string kept;
  for (std::size_t i = 0; i < t.labels.size(); ++i) {
    if (wanted.find(t.labels[i]) == std::string::npos) axes.push_back(static_cast<std::int64_t>(i));
    else kept += t.labels[i];
  }
  return {b.sum(t.x, axes), kept};
}

Var ordered(Builder& b, const Labelled& t, const std::string& order) {
  Integers permutation;
  for (char label : order) permutation.push_back(static_cast<std::int64_t>(t.labels.find(label)));
  return b.transpose(t.x, permutation);
}

std::int64_t extent(const Labelled& t, const std::string& labels) {
  std::int64_t product = 1;
  for (char label : labels) product *= t.x.dim(static_cast<std::int64_t>(t.labels.find(label)));
  return product;
}

/// Labels of both operands that `wanted` has are batch; those of both that it lacks are summed.
Labelled contract(Builder& b, Labelled l, Labelled r, const std::string& wanted) {
  l = without(b, l, wanted + r.labels);
  r = without(b, r, wanted + l.labels);
  std::string batch, rows, columns, summed;
  for (char label : l.labels) {
    const bool shared = r.labels.find(label) != std::string::npos;
    (!shared ? rows : wanted.find(label) != std::string::npos ? batch : summed) += label;
  }
  for (char label : r.labels)
    if (l.labels.find(label) == std::string::npos) columns += label;
  Var left = b.reshape(ordered(b, l, batch + rows + summed), {extent(l, batch), extent(l, rows), extent(l, summed)});
  Var right = b.reshape(ordered(b, r, batch + summed + columns), {extent(r, batch), extent(r, summed), extent(r, columns)});
  Shape shape;
  for (char label : batch + rows) shape.push_back(extent(l, {label}));
  for (char label : columns) shape.push_back(extent(r, {label}));
  return {b.reshape(b.matmul(left, right), shape), batch + rows + columns};
}

/// Takes the diagonal of a label that an operand has twice: element (i, i) of the flattened pair of axes.
Labelled diagonal(NodeContext& n, Labelled t) {
  Builder& b = n.b();
  for (std::size_t i = 0; i < t.labels.size(); ++i) {
    const std::size_t again = t.labels.find(t.labels[i], i + 1);
    if (again == std::string::npos) continue;
    const std::int64_t size = t.x.dim(static_cast<std::int64_t>(i));
    n.require(t.x.dim(static_cast<std::int64_t>(again)) == size, "label '", std::string(1, t.labels[i]), "' has two sizes");
    Shape shape = t.x.shape();
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(again));
    Var same = b.iota({DType::i64, t.x.shape()}, static_cast<std::int64_t>(i)) ==
               b.iota({DType::i64, t.x.shape()}, static_cast<std::int64_t>(again));
    t.x = b.sum(b.select(same, t.x, b.like(t.x, 0)), {static_cast<std::int64_t>(again)});
    t.labels.erase(again, 1);
    --i;
  }
  return t;
}

/// Labels of all operands and of the result; an ellipsis becomes capital letters that the equation does not use, last axes first.
struct Equation {
  std::vector<std::string> operands;
  std::string result;
};
Equation equation_of(NodeContext& n) {
  std::string text = n.text("equation", "");
  std::erase(text, ' ');
  const std::size_t arrow = text.find("->");
  std::vector<std::string> parts{""};
  for (char c : text.substr(0, arrow)) {
    if (c == ',') parts.emplace_back();
    else parts.back() += c;
  }
  n.require(parts.size() == n.inputs(), "equation '", text, "' has ", parts.size(), " operands, found ", n.inputs());
  std::string spare;
  for (char c = 'Z'; c >= 'A'; --c)
    if (text.find(c) == std::string::npos) spare += c;
  std::size_t widest = 0;
  auto expand_ellipsis = [&](std::string part, std::size_t count) {
    const std::size_t at = part.find("...");
    if (at == std::string::npos) return part;
    n.require(count <= spare.size(), "an ellipsis of ", count, " axes");
    std::string names = spare.substr(0, count);
    std::reverse(names.begin(), names.end());
    return part.replace(at, 3, names);
  };
  Equation e;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool open = parts[i].find("...") != std::string::npos;
    const std::size_t rank = n.shape(i).size(), named = parts[i].size() - (open ? 3 : 0);
    n.require(open ? rank >= named : rank == named, "equation '", text, "' does not fit operand ", i, ", ", to_string(n.type(i)));
    if (open) widest = std::max(widest, rank - named);
    e.operands.push_back(expand_ellipsis(parts[i], rank - named));
  }
  if (arrow != std::string::npos) {
    e.result = expand_ellipsis(text.substr(arrow + 2), widest);
    return e;
  }
  // Without an arrow: the ellipsis, then every label that occurs once, in alphabetical order.
  e.result = expand_ellipsis("...", widest);
  std::string all;
  for (const std::string& part : parts) all += part;
  std::sort(all.begin(), all.end());
  for (char c : all)
    if (std::isalpha(static_cast<unsigned char>(c)) && std::count(all.begin(), all.end(), c) == 1) e.result += c;
  return e;
}

Items einsum_row(NodeContext& n) {
  Builder& b = n.b();
  const Equation e = equation_of(n);
  std::vector<Labelled> operands;
  for (std::size_t i = 0; i < n.inputs(); ++i) operands.push_back(diagonal(n, {n.var(i), e.operands[i]}));
  std::map<char, std::int64_t> sizes;
  for (const Labelled& t : operands)
    for (std::size_t i = 0; i < t.labels.size(); ++i) {
      const std::int64_t size = t.x.dim(static_cast<std::int64_t>(i));
      const auto [it, fresh] = sizes.emplace(t.labels[i], size);
      if (it->second != size && it->second != 1 && size != 1)
        n.fail("label '", std::string(1, t.labels[i]), "' is ", it->second, " and ", size);
      it->second = std::max(it->second, size);
    }
  for (Labelled& t : operands) {
    Shape shape;
    for (char label : t.labels) shape.push_back(sizes.at(label));
    t.x = broadcast_to(t.x, shape);
  }
  Labelled total = operands[0];
  for (std::size_t i = 1; i < operands.size(); ++i) {
    std::string wanted = e.result;
    for (std::size_t k = i + 1; k < operands.size(); ++k) wanted += operands[k].labels;
    total = contract(b, total, operands[i], wanted);
  }
  total = without(b, total, e.result);
  for (char label : e.result)
    n.require(total.labels.find(label) != std::string::npos, "label '", std::string(1, label), "' of the result is in no operand");
  return ordered(b, total, e.result);
}

constexpr Row kEinsumRows[] = {{"Einsum", 12, einsum_row}};

}  // namespace

std::span<const Row> einsum_rows() { return kEinsumRows; }

}  // namespace gcomp::frontend
