// A model fed bytes whose program makes floats of them, beside the same model fed those floats.
#pragma once

#include <string>

#include "gcomp/gcomp.h"

namespace gcomp::test {

/// (x / divisor - mean) / std in f32 on the host, along the form's axis.
Tensor floats_of(const Tensor& bytes, const InputForm& form);

/// Where three training steps, the weights after them, an evaluation, a prediction and gradients differ in a bit; "" where nowhere.
/// `pixels` feeds the form's input, `label` the loss.
std::string difference_from_host(const Model& model, const TrainOptions& options, const InputForm& form, const Tensor& pixels,
                                 const Tensor& label);

/// Bytes 0, 1, ... 255 in an order of their own.
Tensor some_bytes(Shape shape);

/// A small network over images of [batch, height, width, 3] in the input "image", class scores in "logits".
Model channels_last_model();

}  // namespace gcomp::test
