// gcomp::fit(): its steps are those of a loop by hand, over any dataset, and it ends when it is told to.
#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gcomp/driver/fit/followed_metric.h"
#include "ir/base/error.h"
#include "passes/training/metrics/metric.h"
#include "runtime/batch_plan.h"
#include "tests/fit/small_training.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

/// Loss of one step on these rows, by the calls that a program without fit() makes.
double step_on(Trainer& trainer, const std::vector<NamedTensor>& arrays, std::span<const std::int64_t> rows) {
  std::vector<NamedTensor> batch;
  for (const auto& [name, all] : arrays) {
    const std::int64_t width = all.elements() / all.shape()[0];
    Tensor part(all.dtype(), {std::ssize(rows), width});
    for (std::int64_t i = 0; i < std::ssize(rows); ++i)
      for (std::int64_t j = 0; j < width; ++j) part.set(i * width + j, all.at(rows[static_cast<std::size_t>(i)] * width + j));
    batch.emplace_back(name, std::move(part));
  }
  return trainer.train_step(Batch(batch.begin(), batch.end()));
}

TEST(Fit, StepsAreThoseOfALoopByHand) {
  const Curve data;
  const std::vector<NamedTensor> arrays = arrays_of(data);
  Trainer by_hand = curve_trainer(), fitted = curve_trainer(), of_arrays = curve_trainer();
  runtime::BatchPlan plan(data.rows(), 4, 7, runtime::RowOrder::shuffled);
  std::vector<double> wanted;
  for (std::int64_t step = 0; step < 18; ++step) {
    by_hand.set_learning_rate(0.05 * (1 - static_cast<double>(step) / 18));
    wanted.push_back(step_on(by_hand, arrays, plan.rows_of(step)));
  }
  const FitOptions options{.epochs = 3, .seed = 7, .schedule = "linear"};
  EXPECT_EQ(losses_of(fitted, data, options), wanted);
  EXPECT_EQ(losses_of(of_arrays, *dataset_of(arrays), options), wanted);
  EXPECT_EQ(fitted.weights_digest(), by_hand.weights_digest());
  EXPECT_EQ(of_arrays.weights_digest(), by_hand.weights_digest());
  EXPECT_EQ(fitted.learning_rate(), 0.05);
  EXPECT_EQ(fitted.data_position(), (DataPosition{.seed = 7, .shuffled = true, .rows = 26, .steps = 18}));
}

TEST(Fit, AFurtherCallGoesOn) {
  const Curve data;
  Trainer whole = curve_trainer(), parts = curve_trainer();
  const std::vector<double> wanted = losses_of(whole, data, {.steps = 11});
  std::vector<double> found = losses_of(parts, data, {.steps = 4});
  for (const double loss : losses_of(parts, data, {.steps = 7})) found.push_back(loss);
  EXPECT_EQ(found, wanted);
  EXPECT_EQ(parts.weights_digest(), whole.weights_digest());
}

/// The rest of an epoch is what a trainer of that batch size does on the same states.
TEST(Fit, LastRowsAreASmallerStepOfTheSameTraining) {
  const Curve data;
  const std::vector<NamedTensor> arrays = arrays_of(data);
  for (const char* optimizer : {"sgd(lr=0.05, momentum=0.9)", "adamw(lr=0.01)"}) {
    Trainer fitted = curve_trainer(optimizer), whole = curve_trainer(optimizer), rest = curve_trainer(optimizer, 2);
    std::vector<std::int64_t> rows(26);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(i);
    const auto copy = [](Trainer& from, Trainer& to) {
      for (const std::string& state : from.states()) {
        const Tensor value = from.read(state);
        to.write(state, value);
      }
    };
    std::vector<double> wanted;
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (std::size_t i = 0; i < 24; i += 4) wanted.push_back(step_on(whole, arrays, std::span(rows).subspan(i, 4)));
      copy(whole, rest);
      wanted.push_back(step_on(rest, arrays, std::span(rows).subspan(24, 2)));
      copy(rest, whole);
    }
    EXPECT_EQ(losses_of(fitted, data, {.epochs = 3, .shuffle = false, .drop_last = false}), wanted) << optimizer;
    EXPECT_EQ(fitted.weights_digest(), whole.weights_digest()) << optimizer;
    EXPECT_EQ(fitted.batch(), 4);
  }
}

TEST(Fit, EvaluatesAtTheStepsThatAreAskedFor) {
  const Curve data, held_back(9);
  Trainer trainer = curve_trainer();
  std::vector<std::int64_t> steps;
  FitCallbacks callbacks;
  callbacks.evaluation = [&](const FitEvaluation& evaluation) { steps.push_back(evaluation.step); };
  const FitResult result = fit(trainer, data, {.steps = 14, .eval = &held_back, .eval_every = 4}, callbacks);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{4, 8, 12, 14}));
  ASSERT_TRUE(result.evaluation);
  EXPECT_EQ(result.evaluation->rows, 9);
  std::vector<NamedTensor> arrays = arrays_of(held_back);
  EXPECT_EQ(result.evaluation->loss, trainer.evaluate(Batch(arrays.begin(), arrays.end())).loss);
}

TEST(Fit, EndsWhereTheMetricNoLongerImproves) {
  const Curve data, held_back(8);
  for (const char* metric : {"loss:3", "mae:3", "r2:3"}) {
    Trainer trainer = curve_trainer();
    trainer.set_learning_rate(0);  // nothing improves behind the first evaluation
    const FitResult result = fit(trainer, data, {.steps = 100, .eval = &held_back, .eval_every = 2, .early_stop = metric});
    EXPECT_EQ(result.end, FitEnd::early_stop) << metric;
    EXPECT_EQ(result.steps, 2 + 3 * 2) << metric;
  }
  Trainer learning = curve_trainer();
  EXPECT_EQ(fit(learning, data, {.steps = 8, .eval = &held_back, .eval_every = 2, .early_stop = "loss:4"}).end, FitEnd::finished);
}

TEST(Fit, EndsWhenItIsCancelledOrOutOfTime) {
  const Curve data;
  Trainer trainer = curve_trainer(), late = curve_trainer();
  int asked = 0;
  FitCallbacks callbacks;
  callbacks.cancelled = [&] { return ++asked == 5; };
  const FitResult cancelled = fit(trainer, data, {.steps = 100}, callbacks);
  EXPECT_EQ(cancelled.end, FitEnd::cancelled);
  EXPECT_EQ(cancelled.steps, 5);
  EXPECT_EQ(trainer.data_position().steps, 5);
  const FitResult timed = fit(late, data, {.steps = 1000000000, .max_seconds = 0.05});
  EXPECT_EQ(timed.end, FitEnd::max_time);
  EXPECT_GT(timed.steps, 0);
}

/// Without evaluations plateau follows the mean loss of each epoch.
TEST(Fit, PlateauFollowsTheLossOfTheEpochs) {
  const Curve data(24);
  Trainer trainer = curve_trainer("sgd(lr=0)");
  trainer.set_learning_rate(1e-300);  // too little to change anything
  std::vector<double> rates;
  FitCallbacks callbacks;
  callbacks.step = [&](const FitStep& step) { rates.push_back(step.learning_rate); };
  fit(trainer, data, {.epochs = 5, .schedule = "plateau(patience=1, factor=0.5, eps=0)"}, callbacks);
  for (std::size_t i = 0; i < rates.size(); ++i) EXPECT_EQ(rates[i], i / 6 < 3 ? 1e-300 : 0.5e-300) << i;
}

/// Of r2 greater values are better, of the loss smaller ones: while they improve, the rate stays.
TEST(Fit, PlateauKnowsWhichValuesAreBetter) {
  const Curve data;
  const auto last_rate = [&](const std::string& options) {
    Trainer trainer = curve_trainer("sgd(lr=0.01)", 26);
    double rate = 0;
    FitCallbacks callbacks;
    callbacks.step = [&](const FitStep& step) { rate = step.learning_rate; };
    fit(trainer, data, {.steps = 8, .schedule = concat("plateau(patience=0, ", options, ")"), .eval = &data, .eval_every = 1},
        callbacks);
    return rate;
  };
  for (const char* options : {"metric=loss", "metric=r2", "metric=r2, mode=max", "metric=loss, mode=min"})
    EXPECT_EQ(last_rate(options), 0.01) << options;
  for (const char* options : {"metric=r2, mode=min", "metric=mae, mode=max", "mode=max"}) try {
      last_rate(options);
      ADD_FAILURE() << options;
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_NE(std::string(error.what()).find("the rate would fall while it improves"), std::string::npos) << error.what();
    }
}

TEST(Fit, AMetricIsFoundByItsTextOrItsNameAlone) {
  const std::vector<std::string> metrics{"accuracy", "top_k(k=5)", "f1(average=macro)", "f1(average=micro)", "confusion"};
  const auto message = [&](std::string_view name) -> std::string {
    try {
      driver::follow_metric(name, metrics, "--save-best");
    } catch (const UserError& error) { return error.what(); }
    return "";
  };
  EXPECT_EQ(driver::follow_metric("top_k", metrics, "").name, "top_k(k=5)");
  EXPECT_TRUE(driver::follow_metric("accuracy", metrics, "").higher_is_better);
  EXPECT_FALSE(driver::follow_metric("loss", {}, "").higher_is_better);
  EXPECT_NE(message("f1").find("may be 'f1(average=macro)' and 'f1(average=micro)'"), std::string::npos) << message("f1");
  EXPECT_NE(message("acuracy").find("did you mean 'accuracy'?"), std::string::npos) << message("acuracy");
  EXPECT_NE(message("confusion").find("no better and worse"), std::string::npos) << message("confusion");
}

TEST(Fit, EachMetricSaysWhichValuesAreBetter) {
  for (const Definition* definition : passes::metric_definitions()) {
    const std::string text = definition->name == "top_k" ? "top_k(k=2)" : std::string(definition->name);
    const std::optional<bool> higher = passes::higher_is_better(text);
    EXPECT_EQ(higher.has_value(), text != "confusion") << text;
    if (higher) { EXPECT_EQ(*higher, text != "mae" && text != "rmse" && text != "perplexity") << text; }
  }
}

TEST(Fit, OptionsThatDoNotFitAreRefused) {
  const Curve data, few(3);
  Trainer trainer = curve_trainer();
  const auto message = [&](const Dataset& rows, const FitOptions& options) -> std::string {
    try {
      fit(trainer, rows, options);
    } catch (const UserError& error) { return error.what(); }
    return "";
  };
  const std::pair<FitOptions, const char*> cases[] = {
      {{}, "give either --epochs N or --steps N"},
      {{.steps = 2, .eval_every = 2}, "--eval-every 2: there is no --eval-data"},
      {{.steps = 2, .early_stop = "loss:2"}, "--early-stop loss:2: there is no --eval-data"},
      {{.steps = 2, .eval = &data, .early_stop = "loss"}, "--early-stop loss: wanted METRIC:N"},
      {{.steps = 2, .eval = &data, .early_stop = "loss:0"}, "--early-stop loss:0: wanted METRIC:N"},
      {{.steps = 2, .eval = &data, .early_stop = "accuracy:2"},
       "the evaluations have no 'accuracy', they have 'mae', 'r2' and 'loss'"},
      {{.steps = 2, .eval = &data, .save_best = "loss"}, "--save-best loss: there is no --run-dir"},
      {{.steps = 2, .skip_spikes = 3}, "--skip-spikes 3: the training step was compiled without it"},
      {{.steps = 2, .schedule = "plateau(metric=mae)"}, "there is no --eval-data"},
      {{.steps = 2, .log_every = 0}, "--log-every: wanted 1 or more"},
      {{.steps = 2, .keep = -1}, "--keep: wanted 0 or more"},
  };
  for (const auto& [options, part] : cases)
    EXPECT_NE(message(data, options).find(part), std::string::npos) << message(data, options);
  EXPECT_NE(message(few, {.steps = 2}).find("a batch of 4 rows, but the data has 3"), std::string::npos);
}

/// Steps, evaluations and checkpoints are places to save at: what is saved there goes on as if it had never been put down.
TEST(SavedInCallbacks, GoesOnAsOneRun) {
  const runtime::test::TemporaryDirectory folder;
  const Curve data, held_back;
  const FitOptions options{
      .steps = 12, .seed = 5, .schedule = "cosine", .eval = &held_back, .eval_every = 4, .checkpoint_every = 6};
  Trainer whole = curve_trainer();
  std::vector<std::pair<std::string, std::int64_t>> saved;
  const auto save = [&](const std::string& name) {
    EXPECT_EQ(whole.learning_rate(), 0.05) << name;
    const std::int64_t steps = whole.data_position().steps;
    saved.emplace_back((folder / concat(name, steps, ".gcx")).string(), steps);
    whole.save(saved.back().first);
  };
  FitCallbacks callbacks;
  callbacks.step = [&](const FitStep& step) {
    if (step.step == 5) save("step");
  };
  callbacks.evaluation = [&](const FitEvaluation&) { save("evaluation"); };
  callbacks.checkpoint = [&] { save("checkpoint"); };
  fit(whole, data, options, callbacks);
  ASSERT_GE(saved.size(), 4u);
  for (const auto& [path, steps] : saved) {
    Trainer rest = Trainer::load(path, DeviceOptions(), DeviceRequest::cpu);
    ASSERT_EQ(rest.data_position().steps, steps) << path;
    FitOptions further = options;
    further.steps = 12 - steps;
    further.eval = nullptr;
    further.eval_every = 0;
    EXPECT_EQ(rest.learning_rate(), 0.05) << path;
    if (steps < 12) fit(rest, data, further);
    EXPECT_EQ(rest.weights_digest(), whole.weights_digest()) << path;
  }
}

/// As PyTorch's users write lr into an optimizer between steps.
TEST(RatesInCallbacks, HoldWhereNoScheduleDecidesThem) {
  const Curve data;
  const auto last = [&](const std::string& schedule) {
    Trainer trainer = curve_trainer();
    FitCallbacks callbacks;
    double told = 0;
    callbacks.step = [&](const FitStep& step) {
      told = step.learning_rate;
      if (step.step == 3) trainer.set_learning_rate(0.01);
    };
    fit(trainer, data, {.steps = 6, .shuffle = false, .schedule = schedule}, callbacks);
    return std::tuple(told, trainer.learning_rate(), trainer.weights_digest());
  };
  Trainer by_hand = curve_trainer();
  fit(by_hand, data, {.steps = 3, .shuffle = false});
  by_hand.set_learning_rate(0.01);
  fit(by_hand, data, {.steps = 3, .shuffle = false});
  EXPECT_EQ(last(""), std::tuple(0.01, 0.01, by_hand.weights_digest()));
  EXPECT_EQ(std::get<1>(last("constant")), 0.05);
}

/// Batches that workers read ahead lie in memory of the step that another fit() of the trainer would take.
TEST(CalledBackByFit, ATrainerIsNotFittedTwiceAtOnce) {
  const Curve data, held_back(9);
  for (const std::int64_t workers : {0, 3}) {
    FitOptions options{.epochs = 2, .seed = 5, .eval = &held_back, .eval_every = 3};
    options.workers = workers;
    Trainer trainer = curve_trainer(), plain = curve_trainer();
    int refused = 0;
    const auto fit_again = [&] {
      try {
        fit(trainer, data, {.steps = 1});
        ADD_FAILURE() << "accepted";
      } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find("fit: it is running already on this trainer"), std::string::npos) << error.what();
        ++refused;
      }
    };
    FitCallbacks callbacks;
    callbacks.begin = [&](const FitPlan&) { fit_again(); };
    callbacks.step = [&](const FitStep&) { fit_again(); };
    callbacks.evaluation = [&](const FitEvaluation&) { fit_again(); };
    fit(trainer, data, options, callbacks);
    EXPECT_EQ(refused, 1 + 12 + 4);
    fit(plain, data, options);
    EXPECT_EQ(trainer.weights_digest(), plain.weights_digest());
    // It ended, also where an error ended it, and another trainer is free all the time.
    callbacks = {};
    callbacks.step = [&](const FitStep&) { fit(trainer, data, {.steps = 1}); };
    EXPECT_THROW(fit(trainer, data, options, callbacks), UserError);
    callbacks.step = [&](const FitStep&) { fit(plain, data, {.steps = 1}); };
    EXPECT_EQ(fit(trainer, data, options, callbacks).steps, 12);
  }
}

/// Whole batches, also where fit() took an epoch's last rows; what is saved there has the step of whole batches too.
TEST(CalledBackByFit, ATrainerTakesStepsAndEvaluates) {
  const runtime::test::TemporaryDirectory folder;
  const Curve data;
  const std::vector<NamedTensor> arrays = arrays_of(data);
  const std::int64_t rows[] = {0, 1, 2, 3};
  for (const std::int64_t workers : {0, 3}) {
    Trainer fitted = curve_trainer(), by_hand = curve_trainer();
    FitOptions options{.epochs = 2, .shuffle = false, .drop_last = false};
    options.workers = workers;
    std::vector<double> found, wanted;
    FitCallbacks callbacks;
    callbacks.step = [&](const FitStep& step) {
      EXPECT_EQ(fitted.batch(), 4) << step.step;
      found.push_back(step.loss);
      found.push_back(step_on(fitted, arrays, rows));
      found.push_back(fitted.evaluate({{"x", arrays[0].second}, {"label", arrays[1].second}}).loss);
      if (step.step == 7) fitted.save((folder / "t.gcx").string());
    };
    fit(fitted, data, options, callbacks);
    for (int step = 0; step < 14; ++step) {
      FitOptions one = options;
      one.epochs = 0, one.steps = 1;
      wanted.push_back(fit(by_hand, data, one).loss);
      wanted.push_back(step_on(by_hand, arrays, rows));
      wanted.push_back(by_hand.evaluate({{"x", arrays[0].second}, {"label", arrays[1].second}}).loss);
    }
    EXPECT_EQ(found, wanted) << workers;
    EXPECT_EQ(Trainer::load((folder / "t.gcx").string(), DeviceOptions(), DeviceRequest::cpu).batch(), 4);
  }
}

}  // namespace
}  // namespace gcomp::test
