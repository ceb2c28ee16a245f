// Steps in two halves: started, then asked for their loss.
#include <gtest/gtest.h>

#include "gcomp/gcomp.h"

namespace gcomp {
namespace {

Trainer trainer_of_halves() {
  const Model model = Model::define([](Layers& nn) {
    Var x = nn.input("x", DType::f32, {kBatch, 4});
    nn.output("y", nn.linear("fc", nn.relu(nn.linear("first", x, 8)), 2));
  });
  TrainOptions options;
  options.loss = "mse";
  options.batch = 4;
  options.device = DeviceRequest::cpu;
  return Trainer(model, options);
}

void write_inputs(Trainer& trainer, float value) {
  for (std::size_t i = 0; i < trainer.input_names().size(); ++i) {
    const std::span<std::byte> memory = trainer.input(i);
    std::fill_n(reinterpret_cast<float*>(memory.data()), memory.size() / sizeof(float), value);
  }
}

TEST(PendingSteps, HalvesGiveTheLossesOfWholeSteps) {
  Trainer whole = trainer_of_halves(), halves = trainer_of_halves();
  ASSERT_EQ(whole.weights_digest(), halves.weights_digest());
  EXPECT_EQ(halves.most_pending(), 1);
  for (const float value : {0.5f, 1.0f, -2.0f}) {
    write_inputs(whole, value);
    write_inputs(halves, value);
    const double loss = whole.step();
    halves.start();
    EXPECT_EQ(halves.pending(), 1);
    EXPECT_EQ(halves.take_loss(), loss);
    EXPECT_EQ(halves.pending(), 0);
  }
  EXPECT_EQ(halves.steps(), 3);
  EXPECT_EQ(whole.weights_digest(), halves.weights_digest());
}

TEST(PendingSteps, OnesTooManyAreRefused) {
  Trainer trainer = trainer_of_halves();
  EXPECT_THROW(trainer.take_loss(), UserError);
  write_inputs(trainer, 1);
  trainer.start();
  EXPECT_THROW(trainer.start(), UserError);
  trainer.take_loss();
  EXPECT_THROW(trainer.take_loss(), UserError);
  EXPECT_THROW(trainer.input(std::size_t{2}), UserError);
}

}  // namespace
}  // namespace gcomp
