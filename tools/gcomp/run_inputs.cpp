#include "tools/gcomp/run_inputs.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "gcomp/driver/fit/batch_loader.h"
#include "ir/base/error.h"
#include "runtime/batch_plan.h"
#include "runtime/files/npz.h"
#include "tools/gcomp/training_data.h"

namespace gcomp::tools {
namespace {

/// The rows of one array, front to back; a scalar is the same for all of them.
class ArrayRows {
 public:
  ArrayRows(const runtime::NpzFile& file, const std::string& name) {
    if (file.type(name).shape.empty()) scalar_ = file.load(name);
    else rows_ = file.open_rows(name);
  }
  const Tensor& next(std::int64_t count) { return rows_ ? rows_->next(count) : scalar_; }

 private:
  std::optional<runtime::NpzRows> rows_;
  Tensor scalar_;
};

class NpzInputs final : public RunInputs {
 public:
  NpzInputs(const std::string& path, const std::vector<std::string>& names) : path_(path), names_(names), file_(path) {
    for (const std::string& name : names_) types_.emplace(name, file_.type(name));
  }

  void begin(std::int64_t batch) override {
    batch_ = batch;
    for (const auto& [name, type] : types_) arrays_.emplace_back(name, ArrayRows(file_, name));
  }
  Batch next() override {
    Batch part;
    for (auto& [name, rows] : arrays_) part.emplace_back(name, rows.next(batch_));
    return part;
  }
  Batch whole() override {
    loaded_ = load_arrays(path_, names_);
    return views_of(loaded_);
  }

 private:
  std::string path_;
  std::vector<std::string> names_;
  runtime::NpzFile file_;
  std::int64_t batch_ = 0;
  std::vector<std::pair<std::string, ArrayRows>> arrays_;
  std::vector<NamedTensor> loaded_;
};

class DataInputs final : public RunInputs {
 public:
  DataInputs(const driver::OpenedData& data, const std::vector<data::WantedArray>& wanted, int workers)
      : data_(*data.train), workers_(workers) {
    check_user(data_.rows() > 0, "'", data_.source(), "' has no rows");
    const std::map<std::string, TensorType> stored = driver::types_of(data_);
    for (const data::WantedArray& input : wanted) {
      TensorType type = stored.at(input.name);
      const auto form = std::ranges::find(data.input_forms, input.name, &InputForm::input);
      if (form != data.input_forms.end()) type.dtype = form->dtype;
      else type.dtype = input.dtype.value_or(type.dtype);
      types_.emplace(input.name, type);
      fed_.arrays.push_back({.name = input.name, .type = std::move(type), .bytes = runtime::ByteForm::pixels});
    }
  }

  void begin(std::int64_t batch) override {
    batch = std::min(batch, data_.rows());
    for (driver::FedArray& array : fed_.arrays) {
      array.type.shape[0] = batch;
      memory_.emplace_back(array.type);
    }
    const runtime::BatchPlan plan(data_.rows(), batch, 0, runtime::RowOrder::sequential, runtime::LastRows::kept);
    loader_ = std::make_unique<driver::BatchLoader>(
        data_, fed_, plan,
        driver::LoaderOptions{.workers = workers_ < 0 ? driver::default_workers(data_, fed_) : workers_,
                              .steps = plan.steps_per_epoch()});
  }
  Batch next() override {
    const std::span<const std::int64_t> rows = loader_->load(step_++, [&](std::size_t input) { return memory_[input].bytes(); });
    Batch part;
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      TensorType type = memory_[i].type();
      type.shape[0] = std::ssize(rows);
      const auto bytes = static_cast<std::size_t>(type.bytes());
      part.emplace_back(fed_.arrays[i].name, TensorView(std::move(type), std::as_bytes(memory_[i].bytes()).first(bytes)));
    }
    return part;
  }
  Batch whole() override {
    begin(data_.rows());
    return next();
  }

 private:
  const Dataset& data_;
  int workers_;
  driver::FedArrays fed_;
  std::vector<Tensor> memory_;
  std::unique_ptr<driver::BatchLoader> loader_;
  std::int64_t step_ = 0;
};

}  // namespace

std::int64_t RunInputs::rows() const {
  std::int64_t rows = -1;
  for (const auto& [name, type] : types_) {
    if (type.shape.empty()) continue;
    if (rows >= 0 && rows != type.shape[0]) return 0;
    rows = type.shape[0];
  }
  return std::max<std::int64_t>(rows, 0);
}

bool has_pixels(const std::string& path, const std::vector<data::WantedArray>& wanted, const std::vector<InputForm>& forms) {
  const runtime::NpzFile file(path);
  return std::ranges::any_of(wanted, [&](const data::WantedArray& input) {
    return input.dtype && is_float(*input.dtype) && std::ranges::count(file.names(), input.name) > 0 &&
           file.type(input.name).dtype == DType::u8 && std::ranges::count(forms, input.name, &InputForm::input) == 0;
  });
}

std::unique_ptr<RunInputs> npz_inputs(const std::string& path, const std::vector<std::string>& names) {
  return std::make_unique<NpzInputs>(path, names);
}

std::unique_ptr<RunInputs> data_inputs(const driver::OpenedData& data, const std::vector<data::WantedArray>& wanted, int workers) {
  return std::make_unique<DataInputs>(data, wanted, workers);
}

}  // namespace gcomp::tools
