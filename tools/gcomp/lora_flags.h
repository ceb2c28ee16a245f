// Options for low-rank adapters: which a model gets, and where what gcomp train makes of them is written.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gcomp/driver/lora.h"
#include "gcomp/trainer.h"
#include "tools/command_line/arguments.h"
#include "tools/gcomp/outputs.h"
#include "tools/gcomp/rescue.h"

namespace gcomp::tools {

struct LoraFlags {
  std::vector<std::string> lora;
  std::string rank, adapter, out_adapter, name_map;
  std::optional<double> alpha;

  /// Of a command that only runs the model.
  void add_adapter(ArgumentParser& parser, const std::string& meaning = "the model with PEFT's adapter: its file, or its folder");
  /// Of one that also compiles a training step.
  void add_selection(ArgumentParser& parser);
  /// Of one that trains.
  void add(ArgumentParser& parser);
  /// What is read, so that nothing is written over it; and that the adapter can be written. Throws UserError.
  void protect(const Outputs& outputs) const;
  /// The files that are written, for Outputs.
  std::vector<Output> outputs() const;
  /// Throws UserError (exit 2) for options that have no meaning together, and for files that cannot be read.
  driver::LoraSettings parse() const;
  /// Before the first step: whether save() will know what to write. Throws UserError.
  void check(const Trainer& trainer) const;
  /// Writes the adapter, if that is asked for; a failure is told, for the model has been written.
  SavedModelFile save(const Trainer& trainer) const;
};

}  // namespace gcomp::tools
