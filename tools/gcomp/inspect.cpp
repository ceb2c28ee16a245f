// gcomp inspect: what a model file holds, one fact a line.
#include <memory>
#include <nlohmann/json.hpp>

#include "gcomp/driver/model_source.h"
#include "gcomp/driver/saved_model.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/options.h"
#include "tools/gcomp/report.h"

namespace gcomp::tools {
namespace {

using nlohmann::json;

struct InspectFlags {
  std::string model;
};

json dimensions_json(const frontend::ValueInfo& value) {
  json sizes = json::array();
  for (const frontend::Dimension& d : value.dimensions) {
    if (d.size >= 0) {
      sizes.push_back(d.size);
    } else {
      sizes.push_back(d.symbol.empty() ? "?" : d.symbol);
    }
  }
  return sizes;
}

json values_json(const std::vector<frontend::ValueInfo>& values) {
  json list = json::array();
  for (const frontend::ValueInfo& v : values) {
    json entry{{"name", v.name}, {"dtype", name_of(v.dtype)}};
    if (v.has_shape) entry["shape"] = dimensions_json(v);
    list.push_back(std::move(entry));
  }
  return list;
}

/// Bytes of one element of a type that the file names; 0 where gcomp does not have it.
std::int64_t element_bytes(const std::string& dtype) {
  const auto known = parse_dtype(dtype);
  return known ? static_cast<std::int64_t>(size_of(*known)) : 0;
}

void inspect_onnx(const InspectFlags& flags, const Console& console) {
  const Model model = Model::load(flags.model);
  const frontend::OnnxFile& file = *driver::onnx_file(model);
  std::string opsets;
  for (const auto& [domain, version] : file.opsets)
    opsets += concat(opsets.empty() ? "" : ", ", domain.empty() ? "ai.onnx" : domain, " ", version);
  console.result(concat("model: '", flags.model, "', ONNX IR ", file.ir_version, ", opset ", opsets,
                        file.producer.empty() ? "" : ", from " + file.producer));
  for (const auto& value : file.inputs) console.result("input: " + to_string(value));
  for (const auto& value : file.outputs) console.result("output: " + to_string(value));
  std::int64_t elements = 0, bytes = 0;
  json initializers = json::array(), operators = json::object();
  for (const auto& i : file.initializers) {
    const std::int64_t count = element_count(i.shape);
    elements += count;
    bytes += count * element_bytes(i.dtype);
    initializers.push_back({{"name", i.name}, {"dtype", i.dtype}, {"shape", i.shape}});
    if (!i.location.empty()) initializers.back()["external"] = i.location;
    if (!i.problem.empty()) initializers.back()["refused"] = i.problem;
  }
  console.result(concat("initializers: ", file.initializers.size(), ", ", grouped(elements), " values, ", bytes_text(bytes)));
  for (const auto& i : file.initializers)
    console.result(concat("  ", i.name, ": ", i.dtype, "[", to_string(i.shape), "]",
                          i.location.empty() ? "" : concat(", in '", i.location, "'"),
                          i.problem.empty() ? "" : concat("; loading refuses it: ", i.problem)));
  json fixed = json::array();
  for (const auto& weight : file.fixed)
    fixed.push_back(
        {{"name", weight.name}, {"dtype", name_of(weight.type.dtype)}, {"shape", weight.type.shape}, {"place", weight.place}});
  if (!fixed.empty()) console.result(concat("floats that never train, being no initializers of the main graph: ", fixed.size()));
  for (const auto& weight : file.fixed) console.result(concat("  ", weight.name, ": ", to_string(weight.type), ", ", weight.place));
  int nodes = 0;
  for (const auto& [name, count] : file.operators) nodes += count, operators[name] = count;
  console.result(concat("operators: ", nodes, " of ", file.operators.size(), " kinds"));
  for (const auto& [name, count] : file.operators) console.result(concat("  ", name, " ", count));
  console.result_json({{"model", flags.model},
                       {"format", "onnx"},
                       {"ir_version", file.ir_version},
                       {"producer", file.producer},
                       {"opsets", file.opsets},
                       {"inputs", values_json(file.inputs)},
                       {"outputs", values_json(file.outputs)},
                       {"initializers", initializers},
                       {"fixed_weights", fixed},
                       {"operators", operators},
                       {"values", elements},
                       {"bytes", bytes}});
}

json ports_json(const runtime::Program& program, const std::vector<runtime::Port>& ports) {
  json list = json::array();
  for (const runtime::Port& port : ports) {
    const runtime::Buffer& buffer = program.buffers[static_cast<std::size_t>(port.buffer)];
    list.push_back({{"name", buffer.name}, {"type", to_string(buffer.type)}, {"role", name_of(port.role)}});
  }
  return list;
}

/// "x: f32[8,4]", and what it is where it is not the model's own and its name does not say so.
std::string port_text(const runtime::Program& program, const runtime::Port& port) {
  const runtime::Buffer& buffer = program.buffers[static_cast<std::size_t>(port.buffer)];
  const bool told = port.role == Role::array || buffer.name == name_of(port.role);
  return concat(buffer.name, ": ", to_string(buffer.type), told ? "" : concat(", role ", name_of(port.role)));
}

void inspect_program(const runtime::Program& program, const Console& console, json& programs) {
  console.result(concat("program: ", program.name, " for ", to_string(program.target), ", ", program.kernels.size(), " kernels, ",
                        program.steps.size(), " launches and library calls"));
  for (const runtime::Port& input : program.inputs) console.result("  input: " + port_text(program, input));
  for (const runtime::Port& output : program.outputs) console.result("  output: " + port_text(program, output));
  console.result(concat("  memory: arena ", bytes_text(program.arena_bytes), ", states ", bytes_text(program.state_bytes),
                        ", constants ", bytes_text(program.constant_bytes), ", inputs and outputs ", bytes_text(program.io_bytes)));
  programs.push_back({{"name", program.name},
                      {"target", to_string(program.target)},
                      {"kernels", program.kernels.size()},
                      {"steps", program.steps.size()},
                      {"inputs", ports_json(program, program.inputs)},
                      {"outputs", ports_json(program, program.outputs)},
                      {"arena_bytes", program.arena_bytes},
                      {"arena_lower_bound", program.arena_lower_bound},
                      {"state_bytes", program.state_bytes},
                      {"constant_bytes", program.constant_bytes},
                      {"io_bytes", program.io_bytes}});
}

void inspect_artifact(const InspectFlags& flags, const Console& console) {
  const runtime::Artifact artifact = runtime::read_artifact(flags.model);
  const driver::SavedModel saved = driver::saved_model(artifact, flags.model);
  console.result(concat("artifact: '", flags.model, "', compiled from '", saved.model, "'",
                        saved.loss.empty() ? "" : concat(", trains ", saved.trained.size(), " parameters with loss ", saved.loss)));
  if (saved.position.steps > 0)
    console.result(concat("trained: ", grouped(saved.position.steps), " steps on ", grouped(saved.position.rows), " rows, ",
                          saved.position.shuffled ? concat("shuffled with seed ", saved.position.seed) : "in order",
                          ", learning rate ", saved.learning_rate));
  if (saved.original && !saved.original->path.empty())
    console.result(concat("exports by: '", saved.original->path, "', SHA-256 ", saved.original->sha256));
  else if (!artifact.model.empty())
    console.result(concat("exports by: the ONNX file inside, ", bytes_text(static_cast<std::int64_t>(artifact.model.size()))));
  const std::string signer = runtime::signer_of(flags.model);
  console.result(signer.empty() ? "signature: none"
                                : concat("signature: by the key ", signer, ", which --require-signature checks"));
  json programs = json::array();
  for (const runtime::Program& program : artifact.programs) inspect_program(program, console, programs);
  std::int64_t elements = 0, bytes = 0;
  json weights = json::object();
  for (const auto& [name, tensor] : artifact.weights) {
    elements += tensor.elements();
    bytes += tensor.type().bytes();
    weights[name] = to_string(tensor.type());
  }
  console.result(concat("states: ", artifact.weights.size(), ", ", grouped(elements), " values, ", bytes_text(bytes)));
  for (const auto& [name, tensor] : artifact.weights) console.result(concat("  ", name, ": ", to_string(tensor.type())));
  for (const auto& [name, binary] : artifact.binaries)
    console.result(concat("binary: ", name, ", ", bytes_text(static_cast<std::int64_t>(binary.size()))));
  console.result_json({{"model", flags.model},
                       {"format", "gcx"},
                       {"signed_by", signer},
                       {"compiled_from", saved.model},
                       {"loss", saved.loss},
                       {"trained", saved.trained},
                       {"programs", programs},
                       {"states", weights}});
}

}  // namespace

Command add_inspect(ArgumentParser& root, Console& console) {
  auto flags = std::make_shared<InspectFlags>();
  ArgumentParser parser = root.add_subcommand("inspect", "inputs, outputs, parameters, ops and sizes of a model");
  parser.add_option("MODEL", flags->model, "an .onnx file, or a .gcx").required();
  parser.set_footer("Examples:\n  gcomp inspect model.onnx\n  gcomp inspect model.gcx --json");
  return {parser,
          [flags, &console] { is_artifact(flags->model) ? inspect_artifact(*flags, console) : inspect_onnx(*flags, console); }};
}

}  // namespace gcomp::tools
