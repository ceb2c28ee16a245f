// Teaches a small network the sign of x * y, saves it, loads it and asks it.
#include <gcomp/gcomp.h>

#include <cstdio>
#include <random>

int main() try {
  const gcomp::Model model = gcomp::Model::define([](gcomp::Layers& nn) {
    gcomp::Var x = nn.input("point", gcomp::DType::f32, {gcomp::kBatch, 2});
    x = nn.relu(nn.linear("fc1", x, 32));
    nn.output("logit", nn.linear("fc2", x, 1));
  });
  gcomp::TrainOptions options{.loss = "bce_with_logits", .optimizer = {"adam"}, .batch = 128};
  gcomp::Trainer trainer = gcomp::compile(model, options);
  trainer.set_learning_rate(0.01);

  std::mt19937 random(1);
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<float> points(2 * 128), labels(128);
  for (int step = 1; step <= 500; ++step) {
    for (float& coordinate : points) coordinate = draw(random);
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = points[2 * i] * points[2 * i + 1] > 0;
    const double loss = trainer.train_step({{"point", {points, {128, 2}}}, {"label", {labels, {128, 1}}}});
    if (step % 100 == 0) std::printf("step %d: loss %.4f\n", step, loss);
  }
  trainer.save("quadrants.gcx");

  gcomp::Predictor saved = gcomp::Predictor::load("quadrants.gcx");
  const std::vector<float> questions{0.5f, 0.5f, -0.5f, 0.5f, -0.5f, -0.5f, 0.5f, -0.5f};
  const gcomp::Tensor answers = saved.predict({{"point", {questions, {4, 2}}}})[0].second;
  for (int i = 0; i < 4; ++i)
    std::printf("(%g, %g) -> %s\n", questions[2 * i], questions[2 * i + 1], answers.at(i) > 0 ? "same sign" : "opposite signs");
} catch (const gcomp::Error& error) { return std::fprintf(stderr, "%s\n", error.what()), static_cast<int>(error.code()); }
