#include "tests/cuda/cudnn/graph.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace gcomp::emulated {
namespace {

using Numbers = std::vector<double>;  // row major

std::int64_t count_of(const Tensor& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t extent : tensor.dimensions) count *= extent;
  return count;
}

/// Positions of all elements, row major, in a buffer with these strides; a dimension of one element repeats along those of `over`.
std::vector<std::int64_t> places(const Tensor& tensor, const std::vector<std::int64_t>& strides,
                                 const std::vector<std::int64_t>& over) {
  std::vector<std::int64_t> all = {0};
  for (std::size_t d = 0; d < over.size(); ++d) {
    std::vector<std::int64_t> next;
    for (const std::int64_t at : all)
      for (std::int64_t i = 0; i < over[d]; ++i) next.push_back(at + (tensor.dimensions[d] == 1 ? 0 : i * strides[d]));
    all = std::move(next);
  }
  return all;
}

std::vector<std::int64_t> dense_strides(const Tensor& tensor) {
  std::vector<std::int64_t> strides(tensor.dimensions.size());
  std::int64_t next = 1;
  for (std::size_t d = strides.size(); d-- > 0; next *= tensor.dimensions[d]) strides[d] = next;
  return strides;
}

double rounded(double value, cudnnDataType_t type) {
  double kept = 0;
  store(&kept, 0, type, value);
  return load(&kept, 0, type);
}

double combined(cudnnPointwiseMode_t mode, double x, double b) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_EXP: return std::exp(x);
    case CUDNN_POINTWISE_LOG: return std::log(x);
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_GEN_INDEX:
    case CUDNN_POINTWISE_BINARY_SELECT: break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

class Run {
 public:
  Run(const Graph& graph, Order order) : graph_(graph), order_(order) {}

  void compute(const Operation& operation) {
    switch (operation.kind) {
      case Operation::Kind::matmul: return write(operation.y, product(operation));
      case Operation::Kind::pointwise: return write(operation.y, pointwise(operation));
      case Operation::Kind::reduction: return write(operation.y, reduction(operation));
      case Operation::Kind::reshape: return write(operation.y, reshaped(operation));
    }
  }

 private:
  /// Of a tensor repeated over larger extents.
  Numbers read(const Tensor& tensor, const std::vector<std::int64_t>& over) const {
    const bool in_memory = !tensor.is_virtual && !tensor.by_value;
    Numbers numbers;
    for (const std::int64_t at : places(tensor, in_memory ? tensor.strides : dense_strides(tensor), over))
      numbers.push_back(tensor.by_value     ? static_cast<double>(graph_.values.at(tensor.identity))
                        : tensor.is_virtual ? between_.at(tensor.identity)[static_cast<std::size_t>(at)]
                                            : load(graph_.memory.at(tensor.identity), at, tensor.type));
    return numbers;
  }
  Numbers read(const Tensor& tensor) const { return read(tensor, tensor.dimensions); }

  void write(const Tensor& tensor, Numbers numbers) {
    for (double& number : numbers) number = rounded(number, tensor.type);
    if (tensor.is_virtual) {
      between_[tensor.identity] = std::move(numbers);
      return;
    }
    std::size_t next = 0;
    for (const std::int64_t at : places(tensor, tensor.strides, tensor.dimensions))
      store(graph_.memory.at(tensor.identity), at, tensor.type, numbers[next++]);
  }

  double sum(const Numbers& terms) const {
    double exact = 0;
    if (order_ == Order::fixed) {
      for (const double term : terms) exact += term;
      return exact;
    }
    float rough = 0;
    if (order_ == Order::forwards)
      for (const double term : terms) rough += static_cast<float>(term);
    else
      for (auto term = terms.rbegin(); term != terms.rend(); ++term) rough += static_cast<float>(*term);
    return static_cast<double>(rough);
  }

  Numbers product(const Operation& o) const {
    const Numbers a = read(o.x), b = read(o.b);
    const auto m = static_cast<std::size_t>(o.y.dimensions[2]), n = static_cast<std::size_t>(o.y.dimensions[3]),
               k = static_cast<std::size_t>(o.x.dimensions[3]), batches = a.size() / (m * k);
    Numbers c, terms(k);
    for (std::size_t i = 0; i < batches * m; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        for (std::size_t l = 0; l < k; ++l) terms[l] = a[i * k + l] * b[(i / m * k + l) * n + j];
        c.push_back(sum(terms));
      }
    return c;
  }

  Numbers pointwise(const Operation& o) const {
    const std::vector<std::int64_t>& extents = o.y.dimensions;
    const auto count = static_cast<std::size_t>(count_of(o.y));
    if (o.mode == CUDNN_POINTWISE_GEN_INDEX) {
      std::int64_t inner = 1;
      for (auto d = static_cast<std::size_t>(o.axis) + 1; d < extents.size(); ++d) inner *= extents[d];
      Numbers y;
      for (std::size_t i = 0; i < count; ++i)
        y.push_back(static_cast<double>(static_cast<std::int64_t>(i) / inner % extents[static_cast<std::size_t>(o.axis)]));
      return y;
    }
    const Numbers x = read(o.x, extents), b = o.b.dimensions.empty() ? Numbers(count) : read(o.b, extents);
    if (o.mode == CUDNN_POINTWISE_BINARY_SELECT) {
      Numbers y = read(o.t, extents);
      for (std::size_t i = 0; i < count; ++i) y[i] = y[i] != 0 ? x[i] : b[i];
      return y;
    }
    Numbers y(count);
    for (std::size_t i = 0; i < count; ++i) y[i] = combined(o.mode, x[i], b[i]);
    return y;
  }

  Numbers reduction(const Operation& o) const {
    const Numbers x = read(o.x);
    const std::vector<std::int64_t> target = places(o.y, dense_strides(o.y), o.x.dimensions);
    std::vector<Numbers> terms(static_cast<std::size_t>(count_of(o.y)));
    for (std::size_t i = 0; i < x.size(); ++i) terms[static_cast<std::size_t>(target[i])].push_back(x[i]);
    Numbers y;
    for (const Numbers& all : terms)
      y.push_back(o.reduction == CUDNN_REDUCE_TENSOR_MAX ? *std::max_element(all.begin(), all.end()) : sum(all));
    return y;
  }

  /// The library knows reshapes of transposes here: the elements stay where they are and the last two dimensions change places.
  Numbers reshaped(const Operation& o) const {
    const Numbers x = read(o.x);
    const auto rows = static_cast<std::size_t>(o.x.dimensions[2]), columns = static_cast<std::size_t>(o.x.dimensions[3]);
    Numbers y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t matrix = i / (rows * columns), row = i / columns % rows, column = i % columns;
      y[matrix * rows * columns + column * rows + row] = x[i];
    }
    return y;
  }

  const Graph& graph_;
  Order order_;
  std::map<std::int64_t, Numbers> between_;
};

bool reads(const Operation& o, const std::set<std::int64_t>& made) {
  for (const Tensor* tensor : {&o.x, &o.b, &o.t})
    if (!tensor->dimensions.empty() && tensor->is_virtual && !made.contains(tensor->identity)) return false;
  return true;
}

bool extents_fit(const Operation& o) {
  const auto &x = o.x.dimensions, &b = o.b.dimensions, &y = o.y.dimensions;
  if (x.size() != 4 || y.size() != 4) return false;
  const auto repeats = [&](const std::vector<std::int64_t>& from) {
    for (std::size_t d = 0; d < from.size(); ++d)
      if (from[d] != y[d] && from[d] != 1) return false;
    return true;
  };
  switch (o.kind) {
    case Operation::Kind::matmul:
      return b.size() == 4 && x[0] == y[0] && x[1] == y[1] && b[0] == y[0] && b[1] == y[1] && x[2] == y[2] && b[3] == y[3] &&
             x[3] == b[2];
    case Operation::Kind::pointwise: return repeats(x) && repeats(b) && repeats(o.t.dimensions);
    case Operation::Kind::reduction:
      for (std::size_t d = 0; d < 4; ++d)
        if (y[d] != x[d] && y[d] != 1) return false;
      return true;
    case Operation::Kind::reshape: return x[0] == y[0] && x[1] == y[1] && x[2] == y[3] && x[3] == y[2];
  }
  return false;
}

}  // namespace

bool Graph::fits() const {
  std::set<std::int64_t> made;
  for (const Operation& operation : operations) {
    if (!reads(operation, made) || !extents_fit(operation)) return false;
    made.insert(operation.y.identity);
  }
  return true;
}

std::vector<const Tensor*> Graph::tensors() const {
  std::map<std::int64_t, const Tensor*> found;
  for (const Operation& operation : operations)
    for (const Tensor* tensor : {&operation.x, &operation.b, &operation.t, &operation.y})
      if (!tensor->dimensions.empty() && !tensor->is_virtual && !tensor->by_value) found.emplace(tensor->identity, tensor);
  std::vector<const Tensor*> all;
  for (const auto& [identity, tensor] : found) all.push_back(tensor);
  return all;
}

void Graph::run(Order order) const {
  Run run(*this, order);
  for (const Operation& operation : operations) run.compute(operation);
}

}  // namespace gcomp::emulated
