// Batches of a program's data that are read ahead, in memory of its executable for as long as a run of fit() needs them.
#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include "runtime/executable.h"

namespace gcomp::driver {

class KeptBatches {
 public:
  /// `inputs` are those of the executable, which must outlive this.
  KeptBatches(runtime::Executable& reader, int count, std::vector<std::size_t> inputs)
      : reader_(reader), inputs_(std::move(inputs)) {
    reader_.keep_batches(count, inputs_);
  }
  ~KeptBatches() {
    try {
      reader_.keep_batches(0, {});
    } catch (const std::exception&) {  // a device that is lost; the run says so
    }
  }
  KeptBatches(const KeptBatches&) = delete;
  KeptBatches& operator=(const KeptBatches&) = delete;

  bool belong_to(const runtime::Executable& reader) const { return &reader_ == &reader; }
  std::span<std::byte> input(int batch, std::size_t input) { return reader_.kept_input(batch, inputs_[input]); }
  void use(int batch) { reader_.use_batch(batch); }

 private:
  runtime::Executable& reader_;
  std::vector<std::size_t> inputs_;
};

}  // namespace gcomp::driver
