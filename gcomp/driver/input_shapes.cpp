#include "gcomp/driver/input_shapes.h"

#include <algorithm>
#include <vector>

#include "ir/base/error.h"
#include "ir/base/nearest.h"

namespace gcomp::driver {
namespace {

using frontend::Dimension;
using frontend::ValueInfo;
using gcomp::to_string;  // which the driver's own would hide

struct Size {
  std::int64_t size = -1;
  std::string from;  // for messages: "--batch 64"
};

class Binder {
 public:
  Binder(const std::string& model, std::span<const ValueInfo> inputs, const ShapeRequest& request)
      : model_(model), inputs_(inputs), request_(request) {}

  std::map<std::string, Shape> bind() {
    check_options();
    for (const ValueInfo& input : inputs_)
      for (const Dimension& dimension : input.dimensions)
        by_symbol_ = by_symbol_ || (!request_.batch_symbol.empty() && dimension.symbol == request_.batch_symbol);
    for (const auto& [symbol, size] : request_.dims) symbols_[symbol] = {size, concat("--dim ", symbol, "=", size)};
    std::vector<std::vector<Size>> sizes;
    for (const ValueInfo& input : inputs_) sizes.push_back(known_sizes(input));
    return finish(std::move(sizes));
  }

 private:
  std::string where(const ValueInfo& input) const { return concat("model '", model_, "', input ", to_string(input)); }

  void check_options() const {
    std::vector<std::string> names, symbols;
    for (const ValueInfo& input : inputs_) {
      names.push_back(input.name);
      for (const Dimension& d : input.dimensions)
        if (d.size < 0 && !d.symbol.empty() && std::find(symbols.begin(), symbols.end(), d.symbol) == symbols.end())
          symbols.push_back(d.symbol);
    }
    for (const auto& [name, shape] : request_.shapes)
      if (std::find(names.begin(), names.end(), name) == names.end())
        throw UserError(concat("--shapes ", name, ": the model '", model_, "' has no input of that name, it has ", listing(names),
                               did_you_mean(name, names)),
                        ExitCode::usage);
    for (const auto& [symbol, size] : request_.dims) {
      if (std::find(symbols.begin(), symbols.end(), symbol) == symbols.end())
        throw UserError(
            concat("--dim ", symbol, "=", size, ": the model '", model_, "' has no symbolic dimension of that name, it has ",
                   listing(symbols), did_you_mean(symbol, symbols)),
            ExitCode::usage);
      if (size < 0) throw UserError(concat("--dim ", symbol, "=", size, ": wanted a size of 0 or more"), ExitCode::usage);
    }
  }

  /// What options and data say of one input; -1 where they are silent. Notes the symbols.
  std::vector<Size> known_sizes(const ValueInfo& input) {
    const auto asked = request_.shapes.find(input.name);
    const auto data = request_.data.find(input.name);
    std::size_t rank = input.dimensions.size();
    if (!input.has_shape) {
      if (asked != request_.shapes.end()) rank = asked->second.size();
      else if (data != request_.data.end()) rank = data->second.shape.size();
      else unbound_.push_back(concat(where(input), ": nothing says its shape; give --shapes ", input.name, ":NxN..."));
    }
    const auto check_rank = [&](const Shape& shape, const std::string& what) {
      check_user(shape.size() == rank, where(input), " has ", rank, " dimensions, ", what, " has ", shape.size(), " ([",
                 to_string(shape), "])");
    };
    if (asked != request_.shapes.end()) check_rank(asked->second, "--shapes " + input.name);
    if (data != request_.data.end()) check_rank(data->second.shape, array(input.name));
    std::vector<Size> sizes(rank);
    for (std::size_t axis = 0; axis < rank; ++axis)
      sizes[axis] = known_size(input, axis, asked == request_.shapes.end() ? nullptr : &asked->second,
                               data == request_.data.end() ? nullptr : &data->second.shape);
    return sizes;
  }

  std::string array(const std::string& name) const {
    return request_.data_source.empty() ? concat("array '", name, "'")
                                        : concat("array '", name, "' of '", request_.data_source, "'");
  }

  std::string batch_text() const {
    const std::int64_t parts = request_.micro_batches;
    return concat("--batch ", *request_.batch * parts, parts == 1 ? "" : concat(" in ", parts, " micro-batches"));
  }

  Size known_size(const ValueInfo& input, std::size_t axis, const Shape* asked, const Shape* data) {
    std::vector<Size> found;
    const Dimension declared = input.has_shape ? input.dimensions[axis] : Dimension{};
    const bool counts_rows = request_.batch && (by_symbol_ ? declared.symbol == request_.batch_symbol : axis == 0);
    if (asked) found.push_back({(*asked)[axis], concat("--shapes ", input.name)});
    if (counts_rows) found.push_back({*request_.batch, batch_text()});
    if (data && !counts_rows) found.push_back({(*data)[axis], array(input.name)});
    if (declared.size >= 0) {
      for (const Size& other : found) check_fixed(input, axis, declared.size, other);
      return {declared.size, "the model"};
    }
    if (!declared.symbol.empty())
      if (const auto bound = symbols_.find(declared.symbol); bound != symbols_.end()) found.push_back(bound->second);
    if (found.empty()) return {};
    for (const Size& other : found)
      check_user(other.size == found[0].size, where(input), ": dimension ", axis,
                 declared.symbol.empty() ? "" : concat(" ('", declared.symbol, "')"), " is ", found[0].size, " by ", found[0].from,
                 ", but ", other.size, " by ", other.from);
    if (!declared.symbol.empty()) symbols_.emplace(declared.symbol, found[0]);
    return found[0];
  }

  void check_fixed(const ValueInfo& input, std::size_t axis, std::int64_t fixed, const Size& other) const {
    if (fixed == other.size) return;
    const bool batch = !by_symbol_ && axis == 0 && request_.batch && other.size == *request_.batch;
    throw UserError(concat(where(input), ": the model fixes dimension ", axis, " at ", fixed, ", ", other.from, " gives ",
                           other.size, batch ? concat("; give --batch ", fixed * request_.micro_batches) : ""));
  }

  std::map<std::string, Shape> finish(std::vector<std::vector<Size>> sizes) {
    std::map<std::string, Shape> shapes;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const ValueInfo& input = inputs_[i];
      Shape& shape = shapes[input.name];
      std::vector<std::string> missing;
      for (std::size_t axis = 0; axis < sizes[i].size(); ++axis) {
        const std::string symbol = input.has_shape ? input.dimensions[axis].symbol : "";
        if (sizes[i][axis].size < 0 && !symbol.empty())
          if (const auto bound = symbols_.find(symbol); bound != symbols_.end()) sizes[i][axis] = bound->second;
        shape.push_back(sizes[i][axis].size);
        if (shape.back() < 0) missing.push_back(symbol);
      }
      if (!missing.empty()) note_unbound(input, missing);
    }
    if (unbound_.empty()) return shapes;
    std::string message = unbound_[0];
    for (std::size_t i = 1; i < unbound_.size(); ++i) message += "\n" + unbound_[i];
    throw UserError(message);
  }

  void note_unbound(const ValueInfo& input, const std::vector<std::string>& missing) {
    std::string flags, example;
    for (const std::string& symbol : missing)
      if (!symbol.empty()) flags += concat(flags.empty() ? "" : " ", "--dim ", symbol, "=N");
    for (const Dimension& d : input.dimensions)
      example += concat(example.empty() ? "" : "x", d.size < 0 ? "N" : std::to_string(d.size));
    unbound_.push_back(concat(where(input), ": ", missing.size() == 1 ? "a dimension is" : "dimensions are", " not bound; give ",
                              flags.empty() ? "" : flags + " or ", "--shapes ", input.name, ":", example, " (N: its size)"));
  }

  const std::string& model_;
  std::span<const ValueInfo> inputs_;
  const ShapeRequest& request_;
  bool by_symbol_ = false;  // which dimensions the batch is the size of
  std::map<std::string, Size> symbols_;
  std::vector<std::string> unbound_;
};

}  // namespace

std::map<std::string, Shape> input_shapes(const std::string& model, std::span<const ValueInfo> inputs,
                                          const ShapeRequest& request) {
  return Binder(model, inputs, request).bind();
}

}  // namespace gcomp::driver
