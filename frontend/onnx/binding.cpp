#include "frontend/onnx/binding.h"

#include <algorithm>
#include <set>

#include "ir/base/error.h"
#include "ir/base/nearest.h"

namespace gcomp::frontend {
namespace {

void check_names(const OnnxFile& file, const ImportOptions& options) {
  std::vector<std::string> inputs, symbols;
  for (const ValueInfo& input : file.inputs) {
    inputs.push_back(input.name);
    for (const Dimension& dim : input.dimensions)
      if (!dim.symbol.empty()) symbols.push_back(dim.symbol);
  }
  for (const auto& [name, shape] : options.shapes)
    check_user(std::find(inputs.begin(), inputs.end(), name) != inputs.end(), file.path, " has no input '", name, "'",
               did_you_mean(name, inputs), "; its inputs are ", listing(inputs));
  for (const auto& [name, tensor] : options.constants)
    check_user(std::find(inputs.begin(), inputs.end(), name) != inputs.end(), file.path, " has no input '", name, "'",
               did_you_mean(name, inputs), "; its inputs are ", listing(inputs));
  std::sort(symbols.begin(), symbols.end());
  symbols.erase(std::unique(symbols.begin(), symbols.end()), symbols.end());
  for (const auto& [name, size] : options.dims) {
    check_user(std::find(symbols.begin(), symbols.end(), name) != symbols.end(), file.path, " has no dimension '", name, "'",
               did_you_mean(name, symbols), "; its dimensions are ", listing(symbols));
    check_user(size >= 0, "--dim ", name, "=", size, ": a dimension cannot be negative");
  }
}

class Binder {
 public:
  Binder(const OnnxFile& file, const ImportOptions& options) : file_(file), dims_(options.dims), given_(options.shapes) {
    for (const auto& [name, tensor] : options.constants) given_[name] = tensor.shape();
    for (const auto& [name, size] : dims_) origin_[name] = concat("--dim ", name, "=", size);
  }

  Binding run() {
    for (const ValueInfo& input : file_.inputs)
      if (auto it = given_.find(input.name); it != given_.end()) take_given(input, it->second);
    for (const ValueInfo& input : file_.inputs)
      if (!given_.count(input.name)) take_declared(input);
    if (!unbound_.empty()) complain();
    check_rebatched();
    return std::move(binding_);
  }

 private:
  void take_given(const ValueInfo& input, const Shape& shape) {
    for (std::int64_t size : shape)
      check_user(size >= 0, "--shapes ", input.name, ":", to_string(shape), ": a dimension cannot be negative");
    binding_.shapes[input.name] = shape;
    if (!input.has_shape) return;
    check_user(shape.size() == input.dimensions.size(), "input '", input.name, "' is ", to_string(input), ", found the shape [",
               to_string(shape), "]");
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const Dimension& dim = input.dimensions[i];
      if (!dim.symbol.empty()) {
        const auto [it, fresh] = dims_.emplace(dim.symbol, shape[i]);
        check_user(it->second == shape[i], "dimension '", dim.symbol, "' is ", it->second, " by ", origin_[dim.symbol], ", but ",
                   shape[i], " by input '", input.name, "'");
        if (fresh) origin_[dim.symbol] = concat("input '", input.name, "'");
      } else if (dim.size >= 0 && dim.size != shape[i]) {
        check_user(i == 0, "input '", input.name, "' is ", to_string(input), " in the file, found the shape [", to_string(shape),
                   "]: the file fixes axis ", i);
        binding_.rebatched = {dim.size, shape[i]};
      }
    }
  }

  void take_declared(const ValueInfo& input) {
    Shape shape;
    bool bound = input.has_shape;
    for (const Dimension& dim : input.dimensions) {
      auto it = dims_.find(dim.symbol);
      const std::int64_t size = dim.size >= 0 ? dim.size : it != dims_.end() && !dim.symbol.empty() ? it->second : -1;
      bound = bound && size >= 0;
      if (size < 0 && !dim.symbol.empty()) missing_symbols_.insert(dim.symbol);
      shape.push_back(size);
    }
    binding_.shapes[input.name] = shape;
    if (!bound) unbound_.push_back(&input);
  }

  [[noreturn]] void complain() const {
    std::string flags;
    for (const std::string& symbol : missing_symbols_) flags += concat(" --dim ", symbol, "=N");
    for (const ValueInfo* input : unbound_) {
      const bool nameless = !input->has_shape || std::any_of(input->dimensions.begin(), input->dimensions.end(),
                                                             [](const Dimension& d) { return d.size < 0 && d.symbol.empty(); });
      if (!nameless) continue;
      flags += concat(" --shapes ", input->name, ":");
      for (std::size_t i = 0; i < input->dimensions.size(); ++i)
        flags += concat(i ? "x" : "", input->dimensions[i].size >= 0 ? std::to_string(input->dimensions[i].size) : "N");
    }
    std::string inputs;
    for (const ValueInfo& input : file_.inputs) inputs += concat(inputs.empty() ? "" : ", ", to_string(input));
    throw UserError(concat(file_.path, ": the shape of ", unbound_.size(), unbound_.size() == 1 ? " input is" : " inputs is",
                           " not bound; the inputs are ", inputs, "; add", flags));
  }

  /// A batch that the file fixes can only change for all inputs that have it.
  void check_rebatched() const {
    if (!binding_.rebatched) return;
    const auto [from, to] = *binding_.rebatched;
    for (const ValueInfo& input : file_.inputs) {
      if (!input.has_shape || input.dimensions.empty() || input.dimensions[0].size != from) continue;
      const Shape& shape = binding_.shapes.at(input.name);
      check_user(shape[0] == to, "the file fixes the batch of ", to_string(input), "; with another input's batch at ", to,
                 " it must be ", to, " too, found ", shape[0]);
    }
  }

  const OnnxFile& file_;
  std::map<std::string, std::int64_t> dims_;
  std::map<std::string, Shape> given_;
  std::map<std::string, std::string> origin_;
  std::vector<const ValueInfo*> unbound_;
  std::set<std::string> missing_symbols_;
  Binding binding_;
};

}  // namespace

Binding bind_shapes(const OnnxFile& file, const ImportOptions& options) {
  check_names(file, options);
  return Binder(file, options).run();
}

}  // namespace gcomp::frontend
