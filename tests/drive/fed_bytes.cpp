#include "tests/drive/fed_bytes.h"

#include "gcomp/gradients.h"
#include "gcomp/layers.h"
#include "gcomp/ops.h"
#include "ir/base/error.h"
#include "ir/base/tensor.h"

namespace gcomp::test {

Tensor floats_of(const Tensor& bytes, const InputForm& form) {
  Tensor made(DType::f32, bytes.shape());
  std::int64_t behind = 1;
  const std::int64_t axis = form.axis < 0 ? form.axis + bytes.type().rank() : form.axis;
  for (std::int64_t d = axis + 1; d < bytes.type().rank(); ++d) behind *= bytes.shape()[static_cast<std::size_t>(d)];
  const std::span<float> out = made.as<float>();
  for (std::size_t i = 0; i < out.size(); ++i) {
    float x = static_cast<float>(bytes.at(static_cast<std::int64_t>(i)));
    if (form.divisor != 1) x = x / static_cast<float>(form.divisor);
    if (!form.mean.empty()) {
      const std::size_t place = i / static_cast<std::size_t>(behind) % form.mean.size();
      x = x - static_cast<float>(form.mean[place]);
      x = x / static_cast<float>(form.std[place]);
    }
    out[i] = x;
  }
  return made;
}

std::string difference_from_host(const Model& model, const TrainOptions& options, const InputForm& form, const Tensor& pixels,
                                 const Tensor& label) {
  TrainOptions formed = options;
  formed.graph.input_forms = {form};
  Trainer fed_bytes(model, formed), fed_floats(model, options);
  const Tensor floats = floats_of(pixels, form);
  const Batch bytes{{form.input, pixels}, {"label", label}}, plain{{form.input, floats}, {"label", label}};
  if (fed_bytes.input_type(form.input).dtype != form.dtype) return "the program's input is of floats";
  for (int step = 0; step < 3; ++step) {
    const double a = fed_bytes.train_step(bytes), b = fed_floats.train_step(plain);
    if (a != b) return concat("step ", step, ": the losses are ", a, " and ", b);
  }
  if (fed_bytes.weights_digest() != fed_floats.weights_digest()) return "the weights differ";
  const Evaluation a = fed_bytes.evaluate(bytes), b = fed_floats.evaluate(plain);
  if (a.loss != b.loss) return concat("evaluations give ", a.loss, " and ", b.loss);
  if (fed_bytes.predict({{form.input, pixels}}) != fed_floats.predict({{form.input, floats}})) return "predictions differ";
  if (fed_bytes.gradients(bytes) != fed_floats.gradients(plain)) return "gradients differ";
  return "";
}

Tensor some_bytes(Shape shape) {
  Tensor made(DType::u8, std::move(shape));
  for (std::size_t i = 0; i < made.bytes().size(); ++i) made.bytes()[i] = static_cast<std::byte>(i * 151 + i / 256 * 7);
  return made;
}

Model channels_last_model() {
  return Model::define([](Layers& nn) {
    Var x = nn.input("image", DType::f32, {kBatch, 6, 5, 3});
    x = nn.relu(nn.linear("fc1", nn.flatten(x), 16));
    nn.output("logits", nn.linear("fc2", x, 4));
  });
}

}  // namespace gcomp::test
