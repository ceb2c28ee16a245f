// Runs quadrants.gcx, which examples/train_mlp wrote, without the compiler half of gcomp: asks it, trains it on, and saves it
// again.
#include <gcomp/loaded_model.h>

#include <cstdio>

int main(int count, char** arguments) try {
  gcomp::LoadedModel model(count > 1 ? arguments[1] : "quadrants.gcx");
  std::printf("device: %s\n", model.device().c_str());
  const std::vector<float> questions{0.5f, 0.5f, -0.5f, 0.5f, -0.5f, -0.5f, 0.5f, -0.5f};
  const gcomp::Tensor answers = model.predict({{"point", {questions, {4, 2}}}})[0].second;
  for (int i = 0; i < 4; ++i)
    std::printf("(%g, %g) -> %s\n", questions[2 * i], questions[2 * i + 1], answers.at(i) > 0 ? "same sign" : "opposite signs");

  std::vector<float> points(2 * 128), labels(128);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    points[2 * i] = static_cast<float>(i % 16) / 8 - 0.9f;
    points[2 * i + 1] = static_cast<float>(i / 16) / 4 - 0.9f;
    labels[i] = points[2 * i] * points[2 * i + 1] > 0;
  }
  const gcomp::Batch batch{{"point", {points, {128, 2}}}, {"label", {labels, {128, 1}}}};
  const double first = model.train_step(batch);
  double last = first;
  for (int step = 0; step < 50; ++step) last = model.train_step(batch);
  std::printf("50 steps more: the loss %s\n", last < first ? "fell" : "did not fall");
  model.save("quadrants_on.gcx");
} catch (const gcomp::Error& error) { return std::fprintf(stderr, "%s\n", error.what()), static_cast<int>(error.code()); }
