#include "data/transforms/transforms.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "data/transforms/rule.h"
#include "ir/base/nearest.h"

namespace gcomp::data {
namespace {

using FormulaKind = Formula::Kind;
using RuleKind = TransformRule::Kind;

constexpr std::array<const TransformRule*, 16> kTransforms{
    &kResize,    &kCenterCrop, &kRandomCrop, &kRandomResizedCrop, &kHflip,  &kVflip, &kColorJitter, &kGrayscale, &kRandomErasing,
    &kNormalize, &kMixup,      &kCutmix,     &kStandardize,       &kOneHot, &kCast,  &kNoise,
};
constexpr std::size_t kMostTransforms = 1000;

class ListParser {
 public:
  ListParser(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  TransformCall call(Formula e) const {
    if (e.kind != FormulaKind::name && e.kind != FormulaKind::call)
      fail(e, "wanted the name of a transform, or NAME(option=value, ...)");
    static const auto definitions = definitions_of(kTransforms);
    const Definition& definition = definition_at(definitions, "transform", e, what_, text_);
    TransformCall made{.rule = &rule_of(kTransforms, Options(definition)), .array = {}, .options = {}};
    if (made.rule->names_array) made.array = take_array(e, *made.rule);
    name_options(e, *made.rule);
    for (Formula::Option& option : e.options) as_list(*made.rule, option.value(), option.name);
    made.options = read_options(definition, e, what_, text_);
    if (made.rule->problem)
      if (const std::string_view problem = made.rule->problem(made.options); !problem.empty())
        fail(e, concat(definition.name, ": ", problem));
    return made;
  }

 private:
  [[noreturn]] void fail(const Formula& e, const std::string& message) const { fail_at(what_, text_, e.begin, e.end, message); }

  std::string take_array(Formula& e, const TransformRule& rule) const {
    if (e.operands.empty() || e.operands[0].kind != FormulaKind::name)
      fail(e, concat(rule.definition.name, " needs the name of an array first: ", rule.definition.name, "(x)"));
    std::string name = e.operands[0].text;
    e.operands.erase(e.operands.begin());
    return name;
  }

  /// Arguments without a name get that of their place.
  void name_options(Formula& e, const TransformRule& rule) const {
    for (std::size_t i = 0; i < e.operands.size(); ++i) {
      Formula& operand = e.operands[i];
      if (i >= rule.positional.size()) fail(operand, concat(rule.definition.name, ": this argument needs a name: NAME=VALUE"));
      const std::string name(rule.positional[i]);
      if (std::ranges::find(e.options, name, &Formula::Option::name) != e.options.end())
        fail(operand, concat("'", name, "' is given twice"));
      const std::size_t begin = operand.begin;
      e.options.emplace_back(name, std::move(operand), begin);
    }
    e.operands.clear();
  }

  /// A number where a list is wanted is a list of it.
  static void as_list(const TransformRule& rule, Formula& value, std::string_view name) {
    const auto option = std::ranges::find(rule.definition.options, name, &OptionDef::name);
    if (option == rule.definition.options.end() || option->kind != OptionKind::numbers || option->count != 0) return;
    if (value.kind != FormulaKind::number) return;
    Formula list{.kind = FormulaKind::list, .begin = value.begin, .end = value.end};
    list.operands.push_back(std::move(value));
    value = std::move(list);
  }

  std::string_view text_, what_;
};

/// What of a list no single call shows.
void check_list(const TransformList& list, const std::vector<Formula>& places, std::string_view text, std::string_view what) {
  bool normalized = false, mixed = false;
  for (std::size_t i = 0; i < list.calls.size(); ++i) {
    const TransformCall& call = list.calls[i];
    const auto fail = [&](const std::string& message) { fail_at(what, text, places[i].begin, places[i].end, message); };
    const bool is_image = call.rule->kind == RuleKind::image;
    if (call.rule == &kNormalize && normalized) fail("normalize is there twice");
    for (std::size_t j = 0; j < i; ++j)
      if (call.rule == &kStandardize && list.calls[j].rule == &kStandardize && list.calls[j].array == call.array)
        fail(concat("standardize(", call.array, ") is there twice"));
    normalized = normalized || call.rule == &kNormalize;
    mixed = mixed || call.rule->kind == RuleKind::mix;
    const bool sizes = call.rule->image && call.rule->definition.options.front().name == "size";
    if (sizes && mixed) fail(concat(call.rule->definition.name, ": mixup and cutmix stand after what gives images their size"));
    if (is_image && normalized)
      fail(concat(call.rule->definition.name, " changes bytes; normalize, which the program does, stands after it"));
  }
}

TransformCall call_of(const TransformRule& rule) { return {.rule = &rule, .array = {}, .options = Options(rule.definition)}; }

std::vector<TransformCall> evaluated(const TransformCall& call) {
  constexpr std::string_view kWhat = "size";
  if (call.rule == &kRandomResizedCrop) {
    const std::vector<double> size = call.options.numbers("size");
    TransformCall resized = call_of(kResize), cropped = call_of(kCenterCrop);
    resized.options.set("size", std::vector<double>{std::nearbyint(std::ranges::max(size) * 256 / 224)}, kWhat);
    if (call.options.given("interpolation")) resized.options.set("interpolation", call.options.word("interpolation"), kWhat);
    cropped.options.set("size", size, kWhat);
    return {resized, cropped};
  }
  if (call.rule == &kRandomCrop) {
    TransformCall cropped = call_of(kCenterCrop);
    cropped.options.set("size", call.options.numbers("size"), kWhat);
    return {cropped};
  }
  if (call.rule->kind == RuleKind::mix) {
    TransformCall unmixed = call;
    unmixed.options.set("p", 0.0, "p");  // the label keeps its form
    return {unmixed};
  }
  if (call.rule == &kGrayscale && call.options.number("p") > 0 && call.options.number("p") < 1) return {};
  if (call.rule->random) return {};
  return {call};
}

}  // namespace

std::string TransformCall::text() const {
  std::string written = options.text();
  if (array.empty()) return written;
  const std::size_t bracket = written.find('(');
  if (bracket == written.npos) return concat(written, "(", quoted_name(array), ")");
  return concat(written.substr(0, bracket + 1), quoted_name(array), ", ", written.substr(bracket + 1));
}

std::string TransformList::text() const {
  std::string written;
  for (const TransformCall& call : calls) written += (written.empty() ? "" : ", ") + call.text();
  return written;
}

TransformList parse_transforms(std::string_view text, std::string_view what) {
  TransformList list;
  if (text.find_first_not_of(" \t") == text.npos) return list;
  const std::vector<Formula> calls = parse_formulas(text, what);
  if (calls.size() > kMostTransforms)
    throw UserError(concat(what, ": more than ", kMostTransforms, " transforms"), ExitCode::usage);
  const ListParser parser(text, what);
  for (const Formula& call : calls) list.calls.push_back(parser.call(call));
  check_list(list, calls, text, what);
  return list;
}

TransformList evaluation_form(const TransformList& list, std::vector<std::string>* notes) {
  TransformList made;
  for (const TransformCall& call : list.calls) {
    const std::vector<TransformCall> instead = evaluated(call);
    made.calls.insert(made.calls.end(), instead.begin(), instead.end());
    if (!notes || (instead.size() == 1 && instead[0].text() == call.text())) continue;
    const std::string text = TransformList{instead}.text();
    notes->push_back(
        call.rule->kind == RuleKind::mix
            ? concat("evaluation mixes no rows: its labels are one-hot instead of ", call.text())
            : concat("evaluation ", text.empty() ? "leaves out " : concat("does ", text, " instead of "), call.text()));
  }
  return made;
}

bool is_random(const TransformList& list) {
  return std::ranges::any_of(list.calls, [](const TransformCall& call) {
    if (call.rule == &kGrayscale) return call.options.number("p") > 0 && call.options.number("p") < 1;
    return call.rule->kind == RuleKind::mix ? call.options.number("p") > 0 : call.rule->random;
  });
}

std::span<const Definition* const> transform_definitions() {
  static const auto all = definitions_of(kTransforms);
  return all;
}

}  // namespace gcomp::data
