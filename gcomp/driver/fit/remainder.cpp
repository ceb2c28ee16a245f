#include "gcomp/driver/fit/remainder.h"

#include <utility>
#include <vector>

#include "gcomp/driver/compile.h"
#include "gcomp/driver/ranks.h"
#include "gcomp/driver/trainer_impl.h"
#include "ir/base/error.h"

namespace gcomp::driver {

RemainderStep::RemainderStep(Trainer& trainer, std::int64_t rows) {
  Trainer::Impl& self = trainer.impl();
  const auto refuse = [&](const std::string& why) {
    throw UserError(concat("--drop-last false: ", rows, " rows of each epoch fill no batch, and ", why), ExitCode::usage);
  };
  if (!self.source) refuse(concat("'", self.artifact_path.string(), "' holds the step of one batch size; train from the .onnx"));
  if (!self.options.graph.shapes.batch) refuse("the model's shapes are given one by one; --batch lets them follow from the rows");
  GraphOptions options = self.options.graph;
  options.shapes.batch = rows;
  const std::int64_t parts = options.step.micro_batches;
  if (rows % parts != 0) refuse(concat("--micro-batches ", parts, " does not divide them"));
  ModelGraph made = [&] {
    try {
      return training_graph(*self.source, options, self.loss, self.options.optimizer, self.options.hooks);
    } catch (const UserError& error) {
      throw UserError(concat("--drop-last false: the step of the last ", rows, " rows of each epoch: ", error.what()),
                      error.code());
    }
  }();
  const frontend::ImportedModel model = std::move(made.model);
  std::vector<StepProgram> programs;
  for (runtime::Program& program : compile_step(std::move(made), self.device->target(), self.options.hooks, options.program_limits))
    programs.push_back({std::move(program)});
  share_choices(*self.device, self.options.device_options.communicator, [&] { time_products(*self.device, programs); });
  step_ = StepPrograms(*self.device, self.memory, std::move(programs), parts,
                       rank_of(self.options.device_options, options.step.sharding));
  for (const std::string& name : self.states.unwritten()) self.states.write(name, model.weights.at(name));
}

void RemainderStep::swap(Trainer& trainer) {
  check_internal(trainer.pending() == 0, "steps are pending while another takes their place");
  std::swap(trainer.impl().step, step_);
}

}  // namespace gcomp::driver
