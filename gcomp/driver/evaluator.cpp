#include "gcomp/driver/evaluator.h"

#include <algorithm>
#include <utility>

#include "gcomp/driver/fit/batch_loader.h"
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
    : program_(std::move(executable), model.limits), model_(std::move(model)) {
  int results = 0;
  for (const bool is_sum : model_.plan.term_is_sum) results += is_sum ? 2 : 1;
  for (const int outputs : model_.plan.metric_outputs) results += outputs;
  const auto found = static_cast<int>(this->executable().program().outputs.size());
  check_user(results == found, "it names ", results, " results of an evaluation, which has ", found);
}

Evaluation Evaluator::run(const Batch& arrays) {
  return run_all(program_.rows_of(arrays), [&](std::int64_t first, std::int64_t count) { program_.run(arrays, first, count); });
}

Evaluation Evaluator::run(const Dataset& data, std::span<const LabelLimit> limits, int workers) {
  const FedArrays fed = fed_arrays(executable().program(), limits);
  check_data(data, fed);
  const std::int64_t rows = data.rows(), batch = program_.batch() == 0 ? rows : std::min(rows, program_.batch());
  const runtime::BatchPlan plan(rows, batch, 0, runtime::RowOrder::sequential, runtime::LastRows::kept);
  BatchLoader loader(data, fed, plan, {.workers = workers, .steps = plan.steps_per_epoch()});
  const auto memory = [&](std::size_t i) { return executable().input(program_.data()[i]); };
  return run_all(rows, [&](std::int64_t first, std::int64_t count) {
    loader.load(first / batch, memory);
    for (std::size_t i = 0; i < program_.data().size(); ++i) {
      const std::span<std::byte> filled = memory(i);
      const TensorType& type = executable().input_buffer(program_.data()[i]).type;
      if (!type.shape.empty() && type.shape[0] > 0) fill_up(filled, filled.size() / static_cast<std::size_t>(type.shape[0]), count);
    }
    program_.run_filled(first);
  });
}

Evaluation Evaluator::run_all(std::int64_t rows, const RunRows& run) {
  const std::int64_t batch = program_.batch() == 0 ? rows : program_.batch();
  check_user(rows > 0, "evaluation needs arrays with rows");
  const auto valid_rows = find_port(executable().program().inputs, Role::rows);
  const bool takes_parts = model_.plan.takes_parts && program_.batch() > 0;
  std::vector<double> sums(model_.plan.term_is_sum.size()), counts(sums.size());
  std::vector<Total> totals(executable().program().outputs.size());
  std::int64_t done = 0;
  for (std::int64_t first = 0; first < rows; first += batch) {
    const std::int64_t count = std::min(batch, rows - first);
    if (count < batch && !takes_parts) {
      check_user(first > 0, rows, " rows to evaluate are less than a batch of ", batch,
                 ", which cannot be filled up: what this model gives for a row depends on the others of its batch, or the loss is "
                 "no mean");
      break;
    }
    if (valid_rows) store_from_double(DType::i64, executable().input(*valid_rows).data(), 0, static_cast<double>(count));
    run(first, count);
    done += count;
    std::size_t output = 0;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const double value = executable().output(output++).at(0);
      const bool is_sum = model_.plan.term_is_sum[i];
      sums[i] += is_sum ? value : value * static_cast<double>(count);
      counts[i] += is_sum ? executable().output(output++).at(0) : static_cast<double>(count);
    }
    for (std::size_t i = 0; i < model_.metrics.size(); ++i)
      for (int k = 0; k < model_.plan.metric_outputs[i]; ++k, ++output)
        totals[output].add(executable().output(output), count, passes::keeps_rows(model_.metrics[i]));
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
