#include "codegen/cuda/device_kernel.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "codegen/cuda/interleaved_stores.h"
#include "ir/base/integers.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

/// Largest magnitude that any partial sum of the index reaches.
double reach(const Index& index) {
  double total = std::abs(static_cast<double>(index.constant()));
  for (const Index::Part& part : index.parts()) {
    const IndexRange range = range_of(part.atom);
    const double largest = std::max(std::abs(static_cast<double>(range.low)), std::abs(static_cast<double>(range.high)));
    total += std::abs(static_cast<double>(part.coefficient)) * largest;
  }
  return total;
}

/// Drops declarations of indices that nothing uses: collapsed and broadcast axes leave some.
std::string without_unused_indices(const std::string& text) {
  constexpr std::string_view kDeclaration = "const gc_index ";
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  std::unordered_map<std::string_view, int> uses;
  const std::string_view view = text;
  for (std::size_t i = 0; i < view.size();) {
    std::size_t end = i;
    while (end < view.size() && is_word(view[end])) ++end;
    if (end > i) ++uses[view.substr(i, end - i)];
    i = std::max(end, i + 1);
  }
  std::string kept;
  for (std::size_t begin = 0; begin < view.size();) {
    const std::size_t end = std::min(view.find('\n', begin), view.size());
    const std::string_view line = view.substr(begin, end - begin);
    const bool declares = line.substr(0, kDeclaration.size()) == kDeclaration && line.find(',') == line.npos;
    const std::string_view name =
        declares ? line.substr(kDeclaration.size(), line.find(' ', kDeclaration.size()) - kDeclaration.size()) : "";
    if (!declares || uses[name] > 1) kept += std::string(line) + "\n";
    begin = end + 1;
  }
  return kept;
}

constexpr std::string_view kBlock = "blockIdx.x";

/// Blocks are counted from the first of their segment on.
std::string with_block_of_segment(std::string text) {
  for (std::size_t at = 0; (at = text.find(kBlock, at)) != text.npos;) text.replace(at, kBlock.size(), "block");
  return text;
}

}  // namespace

bool needs_wide_indices(const FlatNest& nest) {
  constexpr double kLargest = std::numeric_limits<std::int32_t>::max() - 65536.0;  // room for the last block's positions
  double points = 1;
  for (std::int64_t extent : nest.extents) points *= static_cast<double>(extent);
  bool wide = points > kLargest;
  for (std::int64_t elements : nest.result_elements) wide = wide || static_cast<double>(elements) > kLargest;
  for_each_index(nest, [&](const Index& index) { wide = wide || reach(index) > kLargest; });
  return wide;
}

int power_of_two_above(std::int64_t least, int most) {
  int power = 1;
  while (power < least && power < most) power *= 2;
  return power;
}

std::vector<const Store*> stores_where(const FlatNest& nest, const std::function<bool(const Store&)>& accept) {
  std::vector<const Store*> found;
  for (const Store& store : nest.stores)
    if (accept(store)) found.push_back(&store);
  return found;
}

DeviceKernel::DeviceKernel(const FlatNest& nest, bool wide_indices) : nest_(nest), wide_(wide_indices), writer_(nest, "gc_index") {}

std::int64_t DeviceKernel::points(const std::vector<int>& axes) const {
  std::int64_t count = 1;
  for (int a : axes) count *= extent(a);
  return count;
}

void DeviceKernel::bind_axes(const std::string& position, const std::vector<int>& axes) {
  std::int64_t stride = 1;
  for (std::size_t i = axes.size(); i-- > 0;) {
    const int axis = axes[i];
    std::string text = position;
    if (stride > 1) text += concat(" / ", stride, "u");
    if (i > 0) text += concat(" % ", extent(axis), "u");
    stride *= std::max<std::int64_t>(extent(axis), 1);
    const std::string name = writer_.fresh("i");
    writer_.line(concat("const gc_index ", name, " = ", text, ";"));
    writer_.bind_axis(axis, name);
  }
}

std::string DeviceKernel::all_of(const std::vector<std::string>& conditions) {
  std::string all;
  for (const std::string& c : conditions)
    if (!c.empty()) all += (all.empty() ? "" : " && ") + c;
  return all;
}

std::string DeviceKernel::once(const Store& store, const std::vector<int>& loop_axes) {
  const std::vector<int>& axes = nest_.statements[at(store.statement)].axes;
  std::vector<std::string> conditions;
  for (int a : loop_axes)
    if (extent(a) > 1 && std::find(axes.begin(), axes.end(), a) == axes.end())
      conditions.push_back(writer_.index(nest_.axis(a)) + " == 0");
  return all_of(conditions);
}

std::vector<std::string> DeviceKernel::store_lines(const std::vector<const Store*>& stores, const std::vector<int>& loop_axes,
                                                   const std::string& condition) {
  std::vector<std::string> lines;
  for (const Store* store : stores) {
    const std::string value = writer_.unrounded(store->statement), guard = all_of({condition, once(*store, loop_axes)});
    lines.push_back((guard.empty() ? "" : "if (" + guard + ") ") + writer_.store(*store, value));
  }
  return lines;
}

void DeviceKernel::write_stores(const std::vector<const Store*>& stores, const std::vector<int>& loop_axes,
                                const std::string& condition) {
  for (const std::string& line : store_lines(stores, loop_axes, condition)) writer_.line(line);
}

std::string DeviceKernel::vector_place(const Vectors& vectors, int read) {
  const Term& term = *nest_.statements[at(read)].value;
  const std::string place = writer_.index(at_origin(term.indices[0], vectors.lane_axis));
  return concat("p", term.slot, " + ", place.find(' ') == place.npos ? place : "(" + place + ")");
}

std::string DeviceKernel::read_condition(const Vectors& vectors, int read) {
  std::vector<std::string> conditions;
  if (const auto found = vectors.guards.find(read); found != vectors.guards.end())
    for (const Side& side : found->second) {
      const std::string condition = writer_.conditions(side.conditions);
      conditions.push_back(side.holds ? condition : "!(" + condition + ")");
    }
  return all_of(conditions);
}

void DeviceKernel::load_vectors(const Vectors& vectors, const std::vector<int>& reads, const std::string& count) {
  const std::string left = vectors.lanes < vectors.width ? std::to_string(vectors.lanes) : count;
  std::vector<std::pair<std::string, std::string>> fetched;  // vectors, and the arrays of their values
  for (int number : reads) {
    const DType dtype = nest_.statements[at(number)].dtype;
    const std::string place = vector_place(vectors, number), condition = read_condition(vectors, number), name = writer_.fresh("a");
    writer_.line(concat(compute_type_text(dtype), " ", name, "[", vectors.width, "];"));
    writer_.bind_array(number, name, nest_.axis(vectors.lane_axis));
    if (condition.empty() || !left.empty()) {
      const std::string guard = condition.empty() ? "" : concat("if (", condition, ") ");
      writer_.line(concat(guard, "gc_load_vector(", place, ", ", name, left.empty() ? "" : ", " + left, ");"));
      continue;
    }
    // Behind a condition nothing but the load: what uses its values would wait for them there, before the next load.
    fetched.emplace_back(writer_.fresh("a"), name);
    writer_.line(concat("gc_vector<", storage_type_text(dtype), ", ", vectors.width, "> ", fetched.back().first, ";"));
    writer_.line(concat("if (", condition, ") gc_fetch_vector(", place, ", ", fetched.back().first, ");"));
  }
  for (const auto& [vector, values] : fetched) writer_.line(concat("gc_unpack_vector(", vector, ", ", values, ");"));
}

void DeviceKernel::write_lanes(const Vectors& vectors, const std::vector<const Store*>& stores, const std::vector<int>& loop_axes,
                               const std::function<void()>& each_lane, const std::string& count) {
  if (vectors.width > 1) return write_vector_stores(vectors, stores, loop_axes, each_lane, count);
  if (each_lane) each_lane();
  write_neighbouring_stores(stores, loop_axes);
}

void DeviceKernel::write_neighbouring_stores(std::vector<const Store*> single, const std::vector<int>& loop_axes) {
  std::vector<std::pair<std::vector<const Store*>, std::string>> words;
  for (std::vector<const Store*>& members : take_neighbours(nest_, single)) {
    const std::string name = writer_.fresh("r");
    writer_.line(concat(compute_type_text(nest_.results[at(members[0]->result)]), " ", name, "[", members.size(), "];"));
    for (std::size_t i = 0; i < members.size(); ++i)
      writer_.line(concat(name, "[", i, "] = ", writer_.unrounded(members[i]->statement), ";"));
    words.emplace_back(std::move(members), name);
  }
  write_stores(single, loop_axes);
  for (const auto& [members, name] : words) {
    const std::string place = writer_.index(members[0]->at), condition = once(*members[0], loop_axes);
    const std::size_t parameter = nest_.operands.size() + at(members[0]->result);
    writer_.line(concat(condition.empty() ? "" : "if (" + condition + ") ", "gc_store_vectors<",
                        interleaved_width(nest_, {}, members), ">(p", parameter, " + (", place, "), ", name, ");"));
  }
}

void DeviceKernel::write_vector_stores(const Vectors& vectors, const std::vector<const Store*>& stores,
                                       const std::vector<int>& loop_axes, const std::function<void()>& each_lane,
                                       const std::string& count) {
  const std::string left = vectors.lanes < vectors.width ? std::to_string(vectors.lanes) : count;
  std::vector<std::pair<const Store*, std::string>> vectorized;
  std::vector<const Store*> single;
  for (const Store* store : stores) {
    if (!vectors.stores[at(store - nest_.stores.data())]) {
      single.push_back(store);
      continue;
    }
    vectorized.emplace_back(store, writer_.fresh("r"));
    writer_.line(
        concat(compute_type_text(nest_.results[at(store->result)]), " ", vectorized.back().second, "[", vectors.width, "];"));
  }
  std::vector<std::pair<std::vector<const Store*>, std::string>> interleaved;
  if (left.empty())
    for (std::vector<const Store*>& group : take_interleaved(nest_, vectors, single)) {
      interleaved.emplace_back(std::move(group), writer_.fresh("r"));
      const auto& [members, name] = interleaved.back();
      writer_.line(concat(compute_type_text(nest_.results[at(members[0]->result)]), " ", name, "[",
                          vectors.width * static_cast<int>(members.size()), "];"));
    }
  const std::string lane = writer_.fresh("u");
  writer_.open(concat("for (int ", lane, " = 0; ", lane, " < ", vectors.lanes, "; ++", lane, ")"), "#pragma unroll");
  writer_.bind_axis(vectors.lane_axis, lane);
  if (each_lane) each_lane();
  for (const auto& [store, name] : vectorized)
    writer_.line(concat(name, "[", lane, "] = ", writer_.unrounded(store->statement), ";"));
  for (const auto& [members, name] : interleaved)
    for (std::size_t i = 0; i < members.size(); ++i)
      writer_.line(concat(name, "[", lane, " * ", members.size(), " + ", i, "] = ", writer_.unrounded(members[i]->statement), ";"));
  std::vector<int> axes = loop_axes;
  axes.push_back(vectors.lane_axis);
  write_stores(single, axes, count.empty() ? "" : concat(lane, " < ", count));
  writer_.close();
  const auto move = [&](const std::string& function, const Store& store, const std::string& name) {
    const std::string place = writer_.index(at_origin(store.at, vectors.lane_axis)), condition = once(store, loop_axes);
    const std::size_t parameter = nest_.operands.size() + at(store.result);
    writer_.line(concat(condition.empty() ? "" : "if (" + condition + ") ", function, "(p", parameter, " + ",
                        place.find(' ') == place.npos ? place : "(" + place + ")", ", ", name, left.empty() ? "" : ", " + left,
                        ");"));
  };
  for (const auto& [store, name] : vectorized) move("gc_store_vector", *store, name);
  for (const auto& [members, name] : interleaved)
    move(concat("gc_store_vectors<", interleaved_width(nest_, vectors, members), ">"), *members[0], name);
}

void DeviceKernel::set_launch(std::int64_t blocks, int threads, int resident) {
  grid_.blocks = blocks;
  grid_.threads = threads;
  resident_ = resident;
}

EmittedKernel DeviceKernel::finish() {
  const std::size_t operands = nest_.operands.size(), buffers = operands + nest_.results.size();
  const auto type_of = [&](std::size_t i) {
    return i >= operands ? concat(storage_type_text(nest_.results[i - operands]), "*")
                         : concat("const ", storage_type_text(nest_.operands[i]), "*");
  };
  // No result lies over an operand of another size (ir/memory_plan.h). Said so, its reads need not wait for earlier stores.
  const auto qualifier_of = [&](std::size_t i) {
    const bool apart = i < operands && std::none_of(nest_.results.begin(), nest_.results.end(),
                                                    [&](DType result) { return size_of(result) == size_of(nest_.operands[i]); });
    return apart ? " __restrict__" : "";
  };
  std::string parameters, body = concat("typedef ", wide_ ? "long long" : "int", " gc_index;\n");
  const bool has_table = nest_.segments != SegmentForm::one;
  if (has_table) {
    parameters = "const SegmentTable* table, ";
    body += "const int segment = gc_segment(table);\n";
    if (nest_.segments == SegmentForm::any_length) body += "const long long extent = table->extents[segment];\n";
    for (std::size_t i = 0; i < buffers; ++i)
      body += concat(type_of(i), qualifier_of(i), " p", i, " = (", type_of(i), ")table->pointers[segment * ", buffers, " + ", i,
                     "];\n");
  } else {
    for (std::size_t i = 0; i < buffers; ++i) parameters += concat(type_of(i), qualifier_of(i), " p", i, ", ");
  }
  EmittedKernel kernel;
  kernel.may_fault = writer_.may_fault();
  if (kernel.may_fault) body += "bool bad = false;\n";
  const std::string inner = without_unused_indices(writer_.finish());
  if (has_table && inner.find(kBlock) != inner.npos)
    body += concat("const unsigned block = ", kBlock, " - table->first_block[segment];\n", with_block_of_segment(inner));
  else body += inner;
  if (kernel.may_fault) body += "if (bad) *fault = 1;\n";
  kernel.text = indented(concat("extern \"C\" __global__ void __launch_bounds__(", grid_.threads, ", ", resident_, ") ",
                                kNamePlaceholder, "(", parameters, "int* fault) {\n", body, "}\n"));
  kernel.grid = grid_;
  return kernel;
}

}  // namespace gcomp::codegen::cuda
