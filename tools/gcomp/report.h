// What the tool tells about a model before it works on it.
#pragma once

#include <string>
#include <vector>

#include "frontend/onnx/import.h"
#include "tools/gcomp/console.h"

namespace gcomp::tools {

/// What trains, what each step updates and what is frozen, with the reasons, and the repairs that training makes.
void report_parameters(const Console& console, const frontend::ImportedModel& model);
/// What is computed in each run, for want of an option that allows more to be computed at import.
void report_unfolded(const Console& console, const frontend::ImportedModel& model);

/// Notes that differ in names and numbers only become one, with their count and the first names.
std::vector<std::string> merge_notes(const std::vector<std::string>& notes);

/// Where there are several outputs: all of them, and which one the loss looks at.
void report_outputs(const Console& console, const frontend::ImportedModel& model, const std::string& loss,
                    const std::string& output);

/// "'m.onnx': 3 BatchNormalization and 2 Dropout run in inference form (--training keeps them as in training)", where there are
/// any. `what` says what happens to them: "run in inference form (...)".
void report_forms(const Console& console, const std::string& file, const frontend::FormCounts::Nodes& nodes, std::string_view what);

/// "1234567" as "1,234,567".
std::string grouped(std::int64_t number);
/// "1.2 MiB".
std::string bytes_text(std::int64_t bytes);

/// Saves the graph as IR text and says how to replay the failure.
void report_internal_error(const Console& console, const ir::Graph& graph, const std::string& error);

}  // namespace gcomp::tools
