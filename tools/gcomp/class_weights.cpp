#include "tools/gcomp/class_weights.h"

#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "data/format.h"
#include "ir/base/definition.h"
#include "passes/training/losses/loss.h"
#include "runtime/files/npz.h"

namespace gcomp::tools {
namespace {

/// Of a text: a name that stands for an array's numbers.
struct NamedWeights {
  std::string array;
  std::size_t begin = 0, end = 0;
};

/// In the order of the text.
void collect_weights(const Formula& e, std::vector<NamedWeights>& found) {
  for (const Formula& operand : e.operands) collect_weights(operand, found);
  const Definition* definition = e.kind == Formula::Kind::call ? find_definition(passes::loss_definitions(), e.text) : nullptr;
  if (!definition) return;
  for (const Formula::Option& option : e.options)
    for (const OptionDef& known : definition->options)
      if (const Formula& value = option.value(); known.name == option.name && known.kind == OptionKind::weights &&
                                                 value.kind == Formula::Kind::name && value.text != "none")
        found.push_back({value.text, value.begin, value.end});
}

/// Rows of the data beside `array`; none where nothing else has any.
std::optional<std::int64_t> rows_beside(const runtime::NpzFile& file, std::string_view array) {
  const auto rows = [&](std::string_view name) { return file.type(name).shape; };
  if (array != passes::kLabelArray && file.contains(passes::kLabelArray) && !rows(passes::kLabelArray).empty())
    return rows(passes::kLabelArray)[0];
  for (const std::string& name : file.names())
    if (name != array && !rows(name).empty()) return rows(name)[0];
  return std::nullopt;
}

bool are_class_weights(const runtime::NpzFile& file, const std::string& array) {
  if (!file.contains(array)) return false;
  const Shape& shape = file.type(array).shape;
  return shape.size() == 1 && rows_beside(file, array) && *rows_beside(file, array) != shape[0];
}

std::string list_of(const Tensor& numbers) {
  std::string text = "[";
  for (std::int64_t i = 0; i < numbers.elements(); ++i) {
    char digits[32];
    text.append(i == 0 ? "" : ", ");
    text.append(digits, std::to_chars(digits, digits + sizeof digits, numbers.at(i)).ptr);
  }
  return text + "]";
}

}  // namespace

std::string with_class_weights(const std::string& loss, const std::string& data) {
  const passes::LossSpec spec = passes::parse_loss(loss);
  std::vector<NamedWeights> found;
  if (!spec.is_graph) collect_weights(spec.expression, found);
  if (found.empty()) return loss;
  const data::DataSpec spec_of_data = data::parse_spec(data);
  if (spec_of_data.format->definition.name != "npz") return loss;  // arrays of other lengths are an .npz's alone
  const runtime::NpzFile file(spec_of_data.path);
  std::string text = spec.text;
  for (auto weights = found.rbegin(); weights != found.rend(); ++weights)
    if (are_class_weights(file, weights->array))
      text.replace(weights->begin, weights->end - weights->begin, list_of(file.load(weights->array)));
  return text == spec.text ? loss : text;
}

}  // namespace gcomp::tools
