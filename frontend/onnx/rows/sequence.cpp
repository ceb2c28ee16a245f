// Sequences at constant positions, and control flow whose course is known at import. Nothing of either reaches the graph.
#include <algorithm>
#include <limits>

#include "frontend/onnx/rows.h"
#include "ir/base/error.h"

namespace gcomp::frontend {
namespace {

/// Rounds that a Loop or Scan may be unrolled to.
constexpr std::int64_t kMaxRounds = 4096;
/// Elements of a sequence.
constexpr std::int64_t kMaxParts = 1 << 20;

using Elements = std::vector<Item>;

Item sequence_of(Elements elements) { return {{}, nullptr, std::make_shared<const Elements>(std::move(elements))}; }
const Elements& elements_of(NodeContext& n, std::size_t i) {
  const Item item = n.any(i);
  n.require(item.sequence != nullptr, "input ", i, " is no sequence");
  return *item.sequence;
}

std::size_t position_of(NodeContext& n, std::size_t input, std::size_t size) {
  std::int64_t at = n.integers(input, "the position").at(0);
  if (at < 0) at += static_cast<std::int64_t>(size);
  n.require(at >= 0 && at < static_cast<std::int64_t>(size), "position ", at, " of a sequence of ", size);
  return static_cast<std::size_t>(at);
}

Items split_to_sequence_row(NodeContext& n) {
  Builder& b = n.b();
  Var x = n.var(0);
  const std::int64_t axis = n.axis(n.integer("axis", 0), x.rank());
  Integers sizes;
  bool squeeze = false;
  if (x.dim(axis) > kMaxParts) n.unsupported("a sequence of up to ", x.dim(axis), " parts is too long");
  if (!n.has(1)) {
    sizes.assign(static_cast<std::size_t>(x.dim(axis)), 1);
    squeeze = !n.flag("keepdims", true);
  } else if (n.rank(1) == 0) {
    const std::int64_t size = n.integers(1, "the size of the parts").at(0);
    n.require(size > 0, "the size of the parts is ", size);
    for (std::int64_t start = 0; start < x.dim(axis); start += size) sizes.push_back(std::min(size, x.dim(axis) - start));
  } else {
    sizes = n.integers(1, "the sizes of the parts");
  }
  Elements parts;
  std::int64_t start = 0;
  for (std::int64_t size : sizes) {
    n.require(size >= 0 && start + size <= x.dim(axis), "parts [", to_string(sizes), "] do not fit axis ", axis, " of ",
              to_string(x.type()));
    Var part = b.slice_axis(x, axis, start, size);
    if (squeeze) {
      Shape shape = part.shape();
      shape.erase(shape.begin() + axis);
      part = b.reshape(part, shape);
    }
    parts.push_back({part, nullptr, nullptr});
    start += size;
  }
  n.require(start == x.dim(axis), "parts [", to_string(sizes), "] do not add up to axis ", axis, " of ", to_string(x.type()));
  return sequence_of(parts);
}

Items sequence_at_row(NodeContext& n) {
  const Elements& elements = elements_of(n, 0);
  return elements[position_of(n, 1, elements.size())];
}
Items sequence_construct_row(NodeContext& n) {
  Elements elements;
  for (std::size_t i = 0; i < n.inputs(); ++i) elements.push_back(n.item(i));
  return sequence_of(elements);
}
Items sequence_empty_row(NodeContext&) { return sequence_of({}); }
Items sequence_length_row(NodeContext& n) {
  return Tensor::of_integers(std::vector{static_cast<std::int64_t>(elements_of(n, 0).size())}).reshaped({});
}

Items sequence_insert_row(NodeContext& n) {
  Elements elements = elements_of(n, 0);
  std::size_t at = elements.size();
  if (n.has(2) && n.integers(2, "the position").at(0) != static_cast<std::int64_t>(at)) at = position_of(n, 2, at);
  elements.insert(elements.begin() + static_cast<std::ptrdiff_t>(at), n.item(1));
  return sequence_of(elements);
}
Items sequence_erase_row(NodeContext& n) {
  Elements elements = elements_of(n, 0);
  n.require(!elements.empty(), "the sequence is empty");
  const std::size_t at = n.has(1) ? position_of(n, 1, elements.size()) : elements.size() - 1;
  elements.erase(elements.begin() + static_cast<std::ptrdiff_t>(at));
  return sequence_of(elements);
}

Items concat_from_sequence_row(NodeContext& n) {
  Builder& b = n.b();
  std::vector<Var> parts;
  for (const Item& item : elements_of(n, 0)) parts.push_back(n.var(item));
  n.require(!parts.empty(), "the sequence is empty");
  const bool stack = n.flag("new_axis");
  const std::int64_t axis = n.axis(n.integer("axis", 0), parts[0].rank() + (stack ? 1 : 0));
  for (Var& part : parts) {
    Shape shape = part.shape();
    if (stack) shape.insert(shape.begin() + axis, 1);
    part = b.reshape(part, shape);
  }
  return b.concat(parts, axis);
}

Items if_row(NodeContext& n) {
  const bool condition = n.number(0, "the condition") != 0;
  Items items;
  for (Item& item : n.state().lower_graph(n.graph(condition ? "then_branch" : "else_branch"), {})) items.push_back(std::move(item));
  return items;
}

Item known(Tensor tensor) { return {{}, std::make_shared<const Tensor>(std::move(tensor)), nullptr}; }

/// Stacks the values of all rounds along a new axis.
Item stacked(NodeContext& n, const Elements& rounds, std::int64_t axis) {
  std::vector<Var> parts;
  for (const Item& item : rounds) {
    Var part = n.var(item);
    Shape shape = part.shape();
    const std::int64_t at = n.axis(axis, part.rank() + 1);
    shape.insert(shape.begin() + at, 1);
    parts.push_back(n.b().reshape(part, shape));
  }
  if (parts.empty()) n.unsupported("the shape of what a loop without rounds collects is not known");
  return {n.b().concat(parts, n.axis(axis, parts[0].rank())), nullptr, nullptr};
}

/// Unrolled: the number of rounds and the condition must be known at import.
Items loop_row(NodeContext& n) {
  const ::onnx::GraphProto& body = n.graph("body");
  const std::int64_t limit = n.has(0) ? n.integers(0, "the number of rounds").at(0) : std::numeric_limits<std::int64_t>::max();
  bool go = !n.has(1) || n.number(1, "the condition") != 0;
  Elements carried;
  for (std::size_t i = 2; i < n.inputs(); ++i) carried.push_back(n.any(i));
  n.require(body.output_size() >= 1 + static_cast<int>(carried.size()), "the body has ", body.output_size(), " outputs for ",
            carried.size(), " carried values");
  std::vector<Elements> collected(static_cast<std::size_t>(body.output_size()) - 1 - carried.size());
  if (go && limit <= kMaxRounds) n.check_rounds(body, limit);
  for (std::int64_t round = 0; go && round < limit; ++round) {
    if (round == kMaxRounds) n.unsupported("a loop of more than ", kMaxRounds, " rounds is not unrolled");
    Elements inputs{known(Tensor::of_integers(std::vector{round}).reshaped({})), known(Tensor::scalar(DType::boolean, 1))};
    inputs.insert(inputs.end(), carried.begin(), carried.end());
    Elements outputs = n.state().lower_graph(body, inputs);
    if (std::any_of(outputs.begin(), outputs.end(), [](const Item& item) { return item.missing; }))
      n.unsupported("its body is not supported");
    if (!outputs[0].known) n.refuse_unknown(outputs[0], "whether the loop goes on");
    go = outputs[0].known->at(0) != 0;
    std::copy(outputs.begin() + 1, outputs.begin() + 1 + static_cast<std::ptrdiff_t>(carried.size()), carried.begin());
    for (std::size_t i = 0; i < collected.size(); ++i) collected[i].push_back(outputs[1 + carried.size() + i]);
  }
  Items items;
  for (Item& item : carried) items.push_back(std::move(item));
  for (const Elements& rounds : collected) items.push_back(stacked(n, rounds, 0));
  return items;
}

Items scan_row(NodeContext& n) {
  const ::onnx::GraphProto& body = n.graph("body");
  const auto scans = static_cast<std::size_t>(n.integer("num_scan_inputs", 0));
  n.require(scans > 0 && scans <= n.inputs(), "num_scan_inputs is ", scans, " of ", n.inputs(), " inputs");
  const std::size_t states = n.inputs() - scans;
  n.require(static_cast<std::size_t>(body.output_size()) >= states, "the body has ", body.output_size(), " outputs for ", states,
            " states");
  const std::size_t outputs = static_cast<std::size_t>(body.output_size()) - states;
  const Integers input_axes = n.integers("scan_input_axes", Integers(scans)),
                 output_axes = n.integers("scan_output_axes", Integers(outputs));
  const Integers input_reversed = n.integers("scan_input_directions", Integers(scans)),
                 output_reversed = n.integers("scan_output_directions", Integers(outputs));
  Elements carried;
  for (std::size_t i = 0; i < states; ++i) carried.push_back(n.any(i));
  const std::int64_t rounds = n.shape(states)[static_cast<std::size_t>(n.axis(input_axes[0], n.rank(states)))];
  if (rounds > kMaxRounds) n.unsupported("a scan of ", rounds, " rounds is not unrolled");
  n.check_rounds(body, rounds);
  std::vector<Elements> collected(outputs);
  for (std::int64_t round = 0; round < rounds; ++round) {
    Elements inputs = carried;
    for (std::size_t i = 0; i < scans; ++i) {
      Var x = n.var(states + i);
      const std::int64_t axis = n.axis(input_axes[i], x.rank());
      Var part = n.b().slice_axis(x, axis, input_reversed[i] ? rounds - 1 - round : round, 1);
      Shape shape = part.shape();
      shape.erase(shape.begin() + axis);
      inputs.push_back({n.b().reshape(part, shape), nullptr, nullptr});
    }
    Elements made = n.state().lower_graph(body, inputs);
    if (std::any_of(made.begin(), made.end(), [](const Item& item) { return item.missing; }))
      n.unsupported("its body is not supported");
    std::copy(made.begin(), made.begin() + static_cast<std::ptrdiff_t>(states), carried.begin());
    for (std::size_t i = 0; i < outputs; ++i) collected[i].push_back(made[states + i]);
  }
  Items items;
  for (Item& item : carried) items.push_back(std::move(item));
  for (std::size_t i = 0; i < outputs; ++i) {
    if (output_reversed[i]) std::reverse(collected[i].begin(), collected[i].end());
    items.push_back(stacked(n, collected[i], output_axes[i]));
  }
  return items;
}

constexpr Row kSequenceRows[] = {
    {"SplitToSequence", 11, split_to_sequence_row, false},
    {"SequenceAt", 11, sequence_at_row, false},
    {"SequenceConstruct", 11, sequence_construct_row, false},
    {"SequenceEmpty", 11, sequence_empty_row, false},
    {"SequenceLength", 11, sequence_length_row, false},
    {"SequenceInsert", 11, sequence_insert_row, false},
    {"SequenceErase", 11, sequence_erase_row, false},
    {"ConcatFromSequence", 11, concat_from_sequence_row, false},
    {"If", 1, if_row, false},
    {"Loop", 1, loop_row, false},
    {"Scan", 9, scan_row, false},
};

}  // namespace

std::span<const Row> sequence_rows() { return kSequenceRows; }

}  // namespace gcomp::frontend
