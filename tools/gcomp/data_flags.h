// Options of the commands for what a model reads (docs/data.md).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "gcomp/driver/opened_data.h"
#include "gcomp/fit.h"
#include "tools/command_line/arguments.h"
#include "tools/gcomp/console.h"

namespace gcomp::tools {

struct DataFlags {
  driver::DataRequest request;
  std::string mix;

  /// --data and what says how it is read.
  void add(ArgumentParser& parser);
  /// --eval-data, --split and --eval-augment too.
  void add_for_training(ArgumentParser& parser);
  /// What is evaluated, for messages; "" for nothing.
  std::string evaluated() const;
  /// As it was given, for messages: "a.npz, b.npz".
  std::string text() const;
  /// Adds how rows are drawn. Throws UserError (exit 2) for shares that cannot be read.
  void apply(FitOptions& options) const;
};

/// Of data that are evaluated or run. Throws UserError (exit 2) where they would be standardized by numbers of their own, not those
/// of the training rows.
void require_statistics(const std::string& augment);

/// What was assumed of data that have been opened for what is `wanted`.
void say_notes(const Console& console, const driver::OpenedData& data, std::span<const data::WantedArray> wanted);

}  // namespace gcomp::tools
