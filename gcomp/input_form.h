// How an input of floats is fed by what the data have, such as bytes of pixels: the program turns that into floats first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gcomp/tensor.h"

namespace gcomp {

/// The model sees (x / divisor - mean) / std, each step rounded to the model's float type: what the same arithmetic on the host
/// gives, to the bit.
struct InputForm {
  std::string input;              ///< of the model, of floats
  DType dtype = DType::u8;        ///< of what is fed
  double divisor = 255;           ///< 1 for none
  std::vector<double> mean = {};  ///< none, one for all, or one for each place along `axis`
  std::vector<double> std = {};   ///< as many
  std::int64_t axis = 1;          ///< of the input, where the batch is 0; counted from the end if negative

  bool operator==(const InputForm&) const = default;
};

}  // namespace gcomp
