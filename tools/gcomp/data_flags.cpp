#include "tools/gcomp/data_flags.h"

#include <algorithm>
#include <sstream>

#include "data/format.h"
#include "data/transforms/transforms.h"
#include "ir/base/error.h"
#include "tools/command_line/numbers.h"

namespace gcomp::tools {
namespace {

constexpr char kDataGroup[] = "Data (docs/data.md)";

std::string format_names() {
  std::vector<const Definition*> all;
  for (const data::Format* format : data::formats()) all.push_back(&format->definition);
  return names_of(all);
}

}  // namespace

void DataFlags::add(ArgumentParser& parser) {
  parser
      .add_repeated("--data", request.data,
                    concat("PATH, recognised by content, or FORMAT:PATH[,option=value] with one of ", format_names(),
                           "; arrays named after the model's inputs, and what the loss reads"))
      .type_name("DATA")
      .group(kDataGroup)
      .required();
  parser.add_repeated("--map", request.map, "the array that feeds an input, where their names differ; may be repeated")
      .type_name("INPUT=ARRAY")
      .group(kDataGroup);
  parser
      .add_option("--augment", request.augment,
                  "transforms of rows, done one after another: 'random_resized_crop(224), hflip, normalize(imagenet)'")
      .type_name("LIST")
      .group(kDataGroup);
}

void DataFlags::add_for_training(ArgumentParser& parser) {
  add(parser);
  parser.add_option("--eval-data", request.eval_data, "evaluated after every epoch, in inference form")
      .type_name("DATA")
      .group(kDataGroup);
  parser.add_option("--split", request.split, "train on this share of --data and evaluate the rest, such as 0.9")
      .type_name("SHARE")
      .group(kDataGroup);
  parser
      .add_option("--stratify", request.stratify,
                  "with --split: the array of classes, such as label, each of which is divided by that share")
      .type_name("ARRAY")
      .group(kDataGroup);
  parser.add_option("--sample", request.sample, "draw rows with replacement: balanced(array=label), weighted(weights=ARRAY)")
      .type_name("HOW")
      .group(kDataGroup);
  parser.add_option("--mix", mix, "with several --data: the share of each in the rows that are trained on, such as 0.7,0.3")
      .type_name("SHARES")
      .group(kDataGroup);
  parser
      .add_option("--eval-augment", request.eval_augment, "transforms of what is evaluated (default: those of --augment, undrawn)")
      .type_name("LIST")
      .group(kDataGroup);
}

std::string DataFlags::text() const {
  std::string all;
  for (const std::string& one : request.data) all += (all.empty() ? "" : ", ") + one;
  return all;
}

void DataFlags::apply(FitOptions& options) const {
  options.sample = request.sample;
  if (mix.empty()) return;
  std::stringstream shares(mix);
  for (std::string share; std::getline(shares, share, ',');) {
    double number = 0;
    if (!read_number(share, number).empty() || !(number > 0))
      throw UserError(concat("--mix ", mix, ": '", share, "' is no share above 0; wanted one for each --data, such as 0.7,0.3"),
                      ExitCode::usage);
    options.mix.push_back(number);
  }
}

std::string DataFlags::evaluated() const { return request.split ? concat(text(), " --split ", *request.split) : request.eval_data; }

void require_statistics(const std::string& augment) {
  const data::TransformList list = data::parse_transforms(augment);
  if (const data::TransformCall* call = data::find_without_statistics(list))
    throw UserError(
        concat("--augment: ", call->text(), " has no mean and std, and those of the training rows are wanted: standardize(",
               quoted_name(call->array),
               ", mean=[...], std=[...]), as gcomp train says it when it begins (log.txt of its --run-dir has that); a .gcx keeps "
               "them, without --augment"),
        ExitCode::usage);
}

void say_notes(const Console& console, const driver::OpenedData& data, std::span<const data::WantedArray> wanted) {
  for (const std::string& note : data.notes) console.say("note: " + note);
  for (const auto& [name, row] : data.train->arrays()) {
    const auto want = std::ranges::find(wanted, name, &data::WantedArray::name);
    const bool is_float_input = want != wanted.end() && want->input && want->dtype && is_float(*want->dtype);
    const bool has_form = std::ranges::find(data.input_forms, name, &InputForm::input) != data.input_forms.end();
    if (is_float_input && !has_form && row.dtype == DType::u8)
      console.say(concat("note: '", data.train->source(), "': what feeds '", name,
                         "' are unsigned bytes, which are taken for pixels and divided by 255"));
  }
}

}  // namespace gcomp::tools
