#include "gcomp/driver/evaluator.h"

#include <algorithm>
#include <utility>

#include "gcomp/driver/forward.h"
#include "gcomp/driver/step_ports.h"
#include "ir/base/error.h"

namespace gcomp::driver {
namespace {

/// Adds up what the batches give: sums, or the rows themselves.
class Total {
 public:
  void add(const Tensor& part, std::int64_t rows, bool keeps_rows) {
    if (keeps_rows) return append(part, rows);
    if (sum_.elements() == 0) sum_ = Tensor(DType::f64, part.shape());
    for (std::int64_t i = 0; i < part.elements(); ++i) sum_.set(i, sum_.at(i) + part.at(i));
  }
  /// Only after some were added.
  Tensor value() const {
    if (rows_.empty()) return sum_;
    Shape shape = row_;
    shape.insert(shape.begin(), static_cast<std::int64_t>(rows_.size()) / element_count(row_));
    Tensor all(DType::f64, shape);
    for (std::size_t i = 0; i < rows_.size(); ++i) all.set(static_cast<std::int64_t>(i), rows_[i]);
    return all;
  }

 private:
  void append(const Tensor& part, std::int64_t rows) {
    row_.assign(part.shape().begin() + 1, part.shape().end());
    const std::int64_t count = element_count(row_) * rows;
    for (std::int64_t i = 0; i < count; ++i) rows_.push_back(part.at(i));
  }

  Tensor sum_{DType::f64, {0}};
  Shape row_;
  std::vector<double> rows_;
};

}  // namespace

Evaluator::Evaluator(std::unique_ptr<runtime::Executable> executable, EvaluatedModel model)
    : executable_(std::move(executable)), model_(std::move(model)), inputs_(data_inputs(executable_->program())) {
  int results = 0;
  for (const bool is_sum : model_.plan.term_is_sum) results += is_sum ? 2 : 1;
  for (const int outputs : model_.plan.metric_outputs) results += outputs;
  const auto found = static_cast<int>(executable_->program().outputs.size());
  check_user(results == found, "it names ", results, " results of an evaluation, which has ", found);
  for (const std::size_t i : inputs_) {
    const Shape& shape = executable_->input_buffer(i).type.shape;
    if (shape.empty()) continue;
    if (batch_ != 0 && batch_ != shape[0]) {
      batch_ = 0;
      return;
    }
    batch_ = shape[0];
  }
}

std::int64_t Evaluator::rows_of(const Batch& arrays) const {
  std::int64_t rows = -1;
  std::string first;
  for (const std::size_t i : inputs_) {
    const runtime::Buffer& input = executable_->input_buffer(i);
    const TensorType& type = find_array(arrays, input.name).type();
    if (batch_ == 0)
      check_user(type.shape == input.type.shape, "array '", input.name, "' is ", to_string(type), ", wanted ",
                 to_string(input.type));
    if (input.type.shape.empty() || type.shape.empty()) continue;
    if (rows < 0) first = input.name, rows = type.shape[0];
    check_user(batch_ == 0 || type.shape[0] == rows, "array '", first, "' has ", rows, " rows, array '", input.name, "' has ",
               type.shape[0]);
  }
  check_user(rows > 0, "evaluation needs arrays with rows");
  return rows;
}

void Evaluator::fill(const Batch& arrays, std::int64_t first, std::int64_t count) {
  for (const std::size_t i : inputs_) {
    const runtime::Buffer& input = executable_->input_buffer(i);
    const std::int64_t rows = batch_ == 0 && !input.type.shape.empty() ? input.type.shape[0] : count;
    copy_rows(input.name, find_array(arrays, input.name), first, rows, input.type, executable_->input(i));
  }
  const runtime::Program& program = executable_->program();
  if (const auto port = find_port(program.inputs, Role::rows))
    store_from_double(DType::i64, executable_->input(*port).data(), 0, static_cast<double>(count));
}

void Evaluator::run_batch(std::int64_t first) {
  try {
    executable_->run();
    executable_->synchronize();
  } catch (const UserError&) {
    for (const IndexLimit& limit : model_.limits) {
      const std::size_t input = executable_->input_index(limit.input);
      auto fault = find_index_fault(limit, executable_->input_buffer(input).type, executable_->input_of_run(input, 0));
      if (!fault) continue;
      fault->row += first;
      throw UserError(to_string(*fault));
    }
    throw;
  }
}

Evaluation Evaluator::run(const Batch& arrays) {
  const std::int64_t rows = rows_of(arrays), batch = batch_ == 0 ? rows : batch_;
  const bool takes_parts = model_.plan.takes_parts && batch_ > 0;
  std::vector<double> sums(model_.plan.term_is_sum.size()), counts(sums.size());
  std::vector<Total> totals(executable_->program().outputs.size());
  std::int64_t done = 0;
  for (std::int64_t first = 0; first < rows; first += batch) {
    const std::int64_t count = std::min(batch, rows - first);
    if (count < batch && !takes_parts) {
      check_user(first > 0, rows, " rows to evaluate are less than a batch of ", batch,
                 ", which cannot be filled up: what this model gives for a row depends on the others of its batch, or the loss is "
                 "no mean");
      break;
    }
    fill(arrays, first, count);
    run_batch(first);
    done += count;
    std::size_t output = 0;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const double value = executable_->output(output++).at(0);
      const bool is_sum = model_.plan.term_is_sum[i];
      sums[i] += is_sum ? value : value * static_cast<double>(count);
      counts[i] += is_sum ? executable_->output(output++).at(0) : static_cast<double>(count);
    }
    for (std::size_t i = 0; i < model_.metrics.size(); ++i)
      for (int k = 0; k < model_.plan.metric_outputs[i]; ++k, ++output)
        totals[output].add(executable_->output(output), count, passes::keeps_rows(model_.metrics[i]));
  }
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] /= counts[i];
  Evaluation result{.loss = passes::combine_terms(model_.loss, sums), .accuracy = {}, .metrics = {}, .rows = done};
  std::size_t output = 0;
  for (const bool is_sum : model_.plan.term_is_sum) output += is_sum ? 2 : 1;
  for (std::size_t i = 0; i < model_.metrics.size(); ++i) {
    std::vector<Tensor> parts;
    for (int k = 0; k < model_.plan.metric_outputs[i]; ++k, ++output) parts.push_back(totals[output].value());
    Tensor value = passes::metric_value(model_.metrics[i], parts);
    if (model_.metrics[i].is_accuracy() && !result.accuracy) result.accuracy = value.at(0);
    result.metrics.emplace_back(model_.metrics[i].text, std::move(value));
  }
  return result;
}

}  // namespace gcomp::driver
