#include "gcomp/driver/evaluator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "gcomp/driver/not_a_number.h"
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

/// Evaluations add up from part to part, in the order of the rows.
class EvaluationSums {
 public:
  explicit EvaluationSums(const EvaluatedModel& model, std::size_t results)
      : model_(model), sums_(model.plan.term_is_sum.size()), counts_(sums_.size()), totals_(results) {}

  void add(const EvaluatedPart& part) {
    rows_ += part.rows;
    std::size_t next = 0;
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      const double value = part.results[next++].at(0);
      const bool is_sum = model_.plan.term_is_sum[i];
      sums_[i] += is_sum ? value : value * static_cast<double>(part.rows);
      counts_[i] += is_sum ? part.results[next++].at(0) : static_cast<double>(part.rows);
    }
    for (std::size_t i = 0; i < model_.metrics.size(); ++i)
      for (int k = 0; k < model_.plan.metric_outputs[i]; ++k, ++next)
        totals_[next].add(part.results[next], part.rows, passes::keeps_rows(model_.metrics[i]));
  }

  Evaluation value() {
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] /= counts_[i];
    Evaluation result{
        .loss = without_sign_of_nan(passes::combine_terms(model_.loss, sums_)), .accuracy = {}, .metrics = {}, .rows = rows_};
    std::size_t next = 0;
    for (const bool is_sum : model_.plan.term_is_sum) next += is_sum ? 2 : 1;
    for (std::size_t i = 0; i < model_.metrics.size(); ++i) {
      std::vector<Tensor> parts;
      for (int k = 0; k < model_.plan.metric_outputs[i]; ++k, ++next) parts.push_back(totals_[next].value());
      Tensor value = passes::metric_value(model_.metrics[i], parts);
      if (model_.metrics[i].is_accuracy() && !result.accuracy) result.accuracy = value.at(0);
      result.metrics.emplace_back(model_.metrics[i].text, std::move(value));
    }
    return result;
  }

 private:
  const EvaluatedModel& model_;
  std::vector<double> sums_, counts_;
  std::vector<Total> totals_;
  std::int64_t rows_ = 0;
};

/// Parts as bytes, between ranks that run the same program.
std::string bytes_of(const EvaluatedPart& part) {
  std::string bytes(reinterpret_cast<const char*>(&part.rows), sizeof part.rows);
  for (const Tensor& result : part.results) bytes.append(reinterpret_cast<const char*>(result.data()), result.bytes().size());
  return bytes;
}

/// `part` has results of the right types.
void read_part(const std::string& bytes, std::size_t& at, EvaluatedPart& part) {
  const auto take = [&](void* to, std::size_t count) {
    std::memcpy(to, bytes.data() + at, count);
    at += count;
  };
  take(&part.rows, sizeof part.rows);
  for (Tensor& result : part.results) take(result.data(), result.bytes().size());
}

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
  const std::int64_t rows = program_.rows_of(arrays);
  EvaluationSums sums(model_, executable().program().outputs.size());
  const RunRows run = [&](std::int64_t first, std::int64_t count) { program_.run(arrays, first, count); };
  for (std::int64_t part = 0; part < parts_of(rows); ++part) sums.add(run_part(rows, part, run));
  return sums.value();
}

Evaluation Evaluator::run(const Dataset& data, std::span<const LabelLimit> limits, int workers, const Ranks& ranks,
                          const BadRows& bad) {
  const FedArrays fed = fed_arrays(executable().program(), limits);
  check_data(data, fed);
  const std::int64_t rows = data.rows(), batch = program_.batch() == 0 ? rows : std::min(rows, program_.batch());
  const std::int64_t parts = parts_of(rows), begin = parts * ranks.rank() / ranks.size(),
                     end = parts * (ranks.rank() + 1) / ranks.size();
  const runtime::BatchPlan plan(rows, batch, 0, runtime::RowOrder::sequential, runtime::LastRows::kept);
  const auto memory = [&](std::size_t i) { return executable().input(program_.data()[i]); };
  EvaluationSums sums(model_, executable().program().outputs.size());
  std::string own;
  ranks.agree([&] {
    if (begin == end) return;  // fewer batches than ranks
    BatchLoader loader(data, fed, plan,
                       {.workers = workers, .on_bad_sample = bad.policy, .first_step = begin, .steps = end - begin});
    const RunRows run = [&](std::int64_t first, std::int64_t count) {
      loader.load(first / batch, memory);
      for (std::size_t i = 0; i < program_.data().size(); ++i) {
        const std::span<std::byte> filled = memory(i);
        const TensorType& type = executable().input_buffer(program_.data()[i]).type;
        if (!type.shape.empty() && type.shape[0] > 0)
          fill_up(filled, filled.size() / static_cast<std::size_t>(type.shape[0]), count);
      }
      program_.run_filled(first);
    };
    for (std::int64_t part = begin; part < end; ++part) {
      if (ranks.several()) own += bytes_of(run_part(rows, part, run));
      else sums.add(run_part(rows, part, run));
    }
    if (bad.skipped) bad.skipped->insert(bad.skipped->end(), loader.skipped().begin(), loader.skipped().end());
  });
  if (!ranks.several()) return sums.value();
  EvaluatedPart part;
  for (const runtime::Port& output : executable().program().outputs)
    part.results.emplace_back(executable().program().buffers[static_cast<std::size_t>(output.buffer)].type);
  for (const std::string& bytes : ranks.gather(own))
    for (std::size_t at = 0; at < bytes.size(); sums.add(part)) read_part(bytes, at, part);
  return sums.value();
}

/// Into how many runs so many rows are cut. Throws UserError where there are none, or too few for a program that takes whole
/// batches.
std::int64_t Evaluator::parts_of(std::int64_t rows) const {
  check_user(rows > 0, "evaluation needs arrays with rows");
  if (program_.batch() == 0) return 1;
  if (model_.plan.takes_parts) return (rows + program_.batch() - 1) / program_.batch();
  check_user(
      rows >= program_.batch(), rows, " rows to evaluate are less than a batch of ", program_.batch(),
      ", which cannot be filled up: what this model gives for a row depends on the others of its batch, or the loss is no mean");
  return rows / program_.batch();
}

EvaluatedPart Evaluator::run_part(std::int64_t rows, std::int64_t part, const RunRows& run) {
  const std::int64_t batch = program_.batch() == 0 ? rows : program_.batch(), first = part * batch;
  EvaluatedPart made{.rows = std::min(batch, rows - first), .results = {}};
  if (const auto valid_rows = find_port(executable().program().inputs, Role::rows))
    store_from_double(DType::i64, executable().input(*valid_rows).data(), 0, static_cast<double>(made.rows));
  run(first, made.rows);
  for (std::size_t i = 0; i < executable().program().outputs.size(); ++i) made.results.push_back(executable().output(i));
  return made;
}

}  // namespace gcomp::driver
