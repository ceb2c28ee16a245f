#include "tools/gcomp/data_flags.h"

#include "data/format.h"

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
      .add_option("--data", request.data,
                  concat("PATH, recognised by content, or FORMAT:PATH[,option=value] with one of ", format_names(),
                         "; arrays named after the model's inputs, and what the loss reads"))
      .type_name("DATA")
      .group(kDataGroup)
      .required();
  parser.add_repeated("--map", request.map, "the array that feeds an input, where their names differ; may be repeated")
      .type_name("INPUT=ARRAY")
      .group(kDataGroup);
}

void DataFlags::add_for_training(ArgumentParser& parser) {
  add(parser);
  parser.add_option("--eval-data", request.eval_data, "evaluated after every epoch, in inference form")
      .type_name("DATA")
      .group(kDataGroup);
}

}  // namespace gcomp::tools
