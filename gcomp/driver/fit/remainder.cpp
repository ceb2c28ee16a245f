#include "gcomp/driver/fit/remainder.h"

#include <utility>

#include "gcomp/driver/compile.h"
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
  ModelGraph made = training_graph(*self.source, options, self.loss, self.options.optimizer, self.options.hooks);
  runtime::Program program =
      compile_graph(std::move(made.graph), self.device->target(), self.options.hooks, options.program_limits);
  program.name = kTrainingProgram;
  step_ = self.device->load(std::move(program), self.memory);
  for (const std::string& name : self.memory->unwritten()) self.memory->write(name, made.model.weights.at(name));
  ports_ = step_ports(step_->program());
}

void RemainderStep::swap(Trainer& trainer) {
  check_internal(trainer.pending() == 0, "steps are pending while another takes their place");
  std::swap(trainer.impl().step, step_);
  std::swap(trainer.impl().ports, ports_);
}

}  // namespace gcomp::driver
