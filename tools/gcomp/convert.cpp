// gcomp convert: a model from one of its forms to another.
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "gcomp/driver/convert_model.h"
#include "ir/base/error.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/outputs.h"

namespace gcomp::tools {
namespace {

struct ConvertFlags {
  std::string in, out, model;
  bool averages = false, training = false;
};

void convert(const ConvertFlags& flags, const Console& console) {
  const std::vector<std::string> endings{".onnx", ".gcx", ".safetensors"};
  const bool folder = !std::filesystem::path(flags.out).has_extension();
  const Outputs outputs({{"OUT", flags.out, folder ? std::vector<std::string>{""} : endings}});
  outputs.protect("input", flags.in);
  if (!flags.model.empty()) outputs.protect("model", flags.model);
  const driver::Converted converted = driver::convert_model(
      flags.in, flags.out,
      {.model = flags.model, .averages = flags.averages, .form = flags.training ? ExportForm::as_written : ExportForm::inference});
  for (const std::string& note : converted.notes) console.say("note: " + note);
  const std::string beside = converted.beside.empty() ? "" : concat(" and beside it '", converted.beside.string(), "'");
  console.result(concat("wrote '", flags.out, "'", beside, ", ", converted.tensors, converted.tensors == 1 ? " tensor" : " tensors",
                        " from '", flags.in, "'"));
  nlohmann::json json{{"out", flags.out}, {"tensors", converted.tensors}, {"notes", converted.notes}};
  if (!converted.beside.empty()) json["out_data"] = converted.beside.string();
  console.result_json(std::move(json));
}

}  // namespace

Command add_convert(ArgumentParser& root, Console& console) {
  auto flags = std::make_shared<ConvertFlags>();
  ArgumentParser parser =
      root.add_subcommand("convert", "a model as another kind of file: .onnx, .gcx, .safetensors, the folder of a checkpoint");
  parser.add_option("IN", flags->in, "an .onnx, .gcx or .safetensors file, or the folder of a checkpoint, of several, or of a run")
      .required();
  parser.add_option("OUT", flags->out, "its ending says what it becomes; without one it is a new folder, a checkpoint").required();
  parser.add_option("--model", flags->model, "an .onnx or .gcx that has what IN lacks: the graph, or the compiled training step")
      .type_name("FILE");
  parser.add_flag("--averages", flags->averages,
                  "the averages of the parameters (--ema) in their place, to .onnx and .safetensors");
  parser.add_flag("--training", flags->training,
                  "to .onnx: BatchNormalization and Dropout that the file has in training form are written so");
  parser.set_footer(
      "Examples:\n"
      "  gcomp convert trained.onnx weights.safetensors\n"
      "  gcomp convert weights.safetensors other.onnx --model model.onnx\n"
      "  gcomp convert run/checkpoints/step-00000500 at-500.onnx\n"
      "  gcomp convert run/checkpoints at-the-last.gcx --model step.gcx\n"
      "  gcomp convert t.gcx checkpoint\n\n"
      "A .onnx holds a graph and weights, a .safetensors weights alone, a .gcx compiled programs and all states of a training, a\n"
      "checkpoint all states, and which .onnx they are of. What OUT needs and IN lacks comes from --model.");
  return {parser, [flags, &console] { convert(*flags, console); }};
}

}  // namespace gcomp::tools
