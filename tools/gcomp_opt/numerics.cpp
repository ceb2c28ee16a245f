#include "tools/gcomp_opt/numerics.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "ir/base/hash.h"
#include "ir/base/nearest.h"
#include "ir/text/parse.h"
#include "ir/text/scanner.h"
#include "ir/text/spelling.h"

namespace gcomp::opt {
namespace {

using namespace ir;

constexpr std::int64_t kPrinted = 64;  ///< elements of one array that --interpret shows

double real(Scanner& in) {
  const std::size_t at = in.next();
  const auto value = parse_number(in.accept_number());
  if (!value) in.fail(at, "found ", in.found(), ", wanted a number");
  return *value;
}

struct Range {
  double low, high;
};

Range default_range(const Value* value, const State* state) {
  if (!is_float(value->type.dtype)) return {0, 1};
  if (!state) return {-2, 2};
  switch (state->role) {
    case StateRole::parameter: return {-1, 1};
    case StateRole::running_statistic: return {0.5, 1.5};
    case StateRole::optimizer: return {0, 1};  // second moments go under a root
    case StateRole::counter: return {1, 10};
    case StateRole::scratch: return {-2, 2};
  }
  return {-2, 2};
}

Tensor random_tensor(const TensorType& type, Range range, std::uint64_t seed) {
  Tensor tensor(type);
  std::mt19937_64 bits(seed);
  const double count = std::floor(range.high) - std::ceil(range.low) + 1;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const double unit = static_cast<double>(bits() >> 11) * 0x1p-53;
    tensor.set(
        i, is_float(type.dtype) ? range.low + unit * (range.high - range.low) : std::ceil(range.low) + std::floor(unit * count));
  }
  return tensor;
}

std::uint64_t seed_of(std::uint64_t seed, std::string_view name) { return fnv1a(name, 0xcbf29ce484222325u ^ seed); }

/// How far floats may differ: the coarsest dtype that either graph computes in decides.
double tolerance(const Graph& a, const Graph& b) {
  double worst = 1e-9;
  auto look = [&](const Value* value) {
    switch (value->type.dtype) {
      case DType::f32: worst = std::max(worst, 1e-4); break;
      case DType::f16: worst = std::max(worst, 2e-2); break;
      case DType::bf16: worst = std::max(worst, 1e-1); break;
      default: break;
    }
  };
  for (const Graph* graph : {&a, &b}) {
    for (const Value* input : graph->inputs()) look(input);
    for (const State& state : graph->states()) look(state.value);
    for (const auto& node : graph->nodes())
      for (const Value* result : node->results) look(result);
  }
  return worst;
}

void compare_tensors(const std::string& what, const Tensor& before, const Tensor& after, double tolerated) {
  if (!(before.type() == after.type()))
    throw InternalError(concat(what, " was ", to_string(before.type()), " and is now ", to_string(after.type())));
  double scale = 0;
  for (double x : before.to_doubles())
    if (std::isfinite(x)) scale = std::max(scale, std::fabs(x));
  const double allowed = is_float(before.dtype()) ? tolerated * std::max(scale, 1.0) : 0;
  for (std::int64_t i = 0; i < before.elements(); ++i) {
    const double a = before.at(i), b = after.at(i);
    const bool same = a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= allowed;
    if (!same)
      throw InternalError(concat(what, " differs: element ", i, " was ", number_text(a), " and is now ", number_text(b),
                                 ", tolerated ", number_text(allowed)));
  }
}

std::string tensor_line(const std::string& name, const Tensor& tensor) {
  std::string text = spelled('%', name) + " = " + to_string(tensor.type()) + " [";
  for (std::int64_t i = 0; i < std::min(tensor.elements(), kPrinted); ++i)
    text += (i ? ", " : "") + number_text(tensor.dtype(), tensor.at(i));
  return text + (tensor.elements() > kPrinted ? ", ...]\n" : "]\n");
}

}  // namespace

Directives read_directives(std::string_view text, const std::string& file, int first_line) {
  Directives directives;
  for (int line = first_line; !text.empty(); ++line) {
    std::string_view row = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(row.size() + 1, text.size()));
    row.remove_prefix(std::min(row.find_first_not_of(" \t"), row.size()));
    if (row.substr(0, 9) != "// range " && row.substr(0, 9) != "// value ") continue;
    Scanner in(row.substr(3), file, line);
    const bool range = in.word("") == "range";
    const std::string name = in.name('%', "a value, as in %x");
    directives.places.emplace(name, concat(file, ":", line));
    if (range) {
      const double low = real(in);
      directives.ranges[name] = {low, real(in)};
      check_user(directives.ranges[name].second >= low, file, ":", line, ": the range of ", spelled('%', name), " is empty");
    } else {
      directives.values.insert_or_assign(name, parse_tensor(row.substr(3 + in.next())));
    }
  }
  return directives;
}

void add_names(const Graph& graph, std::set<std::string>& names) {
  for (const Value* input : graph.inputs()) names.insert(input->name);
  for (const State& state : graph.states()) names.insert(state.value->name);
}

std::vector<std::string> notes_of_unused(const Directives& directives, const std::set<std::string>& names) {
  const std::vector<std::string> known(names.begin(), names.end());
  std::vector<std::string> notes;
  for (const auto& [name, place] : directives.places)
    if (!names.contains(name))
      notes.push_back(concat(place, ": nothing uses what is said of ", spelled('%', name),
                             ", wanted an input or a state, which are ", listing(known), did_you_mean(name, known)));
  return notes;
}

void add_values(const Graph& graph, const Directives& directives, std::uint64_t seed, Values& values) {
  auto add = [&](const Value* value, const State* state) {
    if (values.count(value->name)) return;
    if (auto given = directives.values.find(value->name); given != directives.values.end()) {
      values.emplace(value->name, given->second);
      return;
    }
    auto range = directives.ranges.find(value->name);
    if (state && state->fill && range == directives.ranges.end()) return;
    const Range limits =
        range == directives.ranges.end() ? default_range(value, state) : Range{range->second.first, range->second.second};
    values.emplace(value->name, random_tensor(value->type, limits, seed_of(seed, value->name)));
  };
  for (const Value* input : graph.inputs()) add(input, nullptr);
  for (const State& state : graph.states()) add(state.value, &state);
}

std::string compare(const Graph& before, const Graph& after, const Values& values) {
  const InterpretResult old = interpret(before, values), now = interpret(after, values);
  const double tolerated = tolerance(before, after);
  if (now.outputs.size() < old.outputs.size())
    throw InternalError(concat("there were ", old.outputs.size(), " outputs and are now ", now.outputs.size()));
  std::string note;
  for (std::size_t i = 0; i < old.outputs.size(); ++i) {
    const std::string name = spelled('%', before.outputs()[i]->name);
    compare_tensors("output " + name, old.outputs[i], now.outputs[i], tolerated);
    const std::vector<double> elements = old.outputs[i].to_doubles();
    if (!elements.empty() && std::all_of(elements.begin(), elements.end(), [](double x) { return std::isnan(x); }))
      note += "; " + name + " is NaN everywhere";
  }
  for (const auto& [name, tensor] : old.states) {
    auto found = now.states.find(name);
    if (found == now.states.end()) throw InternalError(concat("state ", spelled('%', name), " is no longer updated"));
    compare_tensors("state " + spelled('%', name), tensor, found->second, tolerated);
  }
  return concat(old.outputs.size(), " outputs and ", old.states.size(), " states agree to ", number_text(tolerated), note);
}

std::string interpreted(const Graph& graph, const Values& values) {
  const InterpretResult result = interpret(graph, values);
  std::string text;
  for (std::size_t i = 0; i < result.outputs.size(); ++i) text += tensor_line(graph.outputs()[i]->name, result.outputs[i]);
  for (const auto& [name, tensor] : result.states) text += "state " + tensor_line(name, tensor);
  return text;
}

}  // namespace gcomp::opt
