#include "passes/training/losses/calls.h"

#include <algorithm>

namespace gcomp::passes {
namespace {

using FormulaKind = Formula::Kind;

void check_operand(const FormulaSpec& spec, const Formula& e) {
  constexpr std::string_view kWanted = "; wanted a name, a number, or arithmetic of them";
  if (e.kind == FormulaKind::call) fail_in(spec, e, ExitCode::usage, concat("a call is no argument of another", kWanted));
  if (e.kind == FormulaKind::list) fail_in(spec, e, ExitCode::usage, concat("a list is the value of an option", kWanted));
  for (const Formula& operand : e.operands) check_operand(spec, operand);
}

void collect_names(const Formula& e, std::vector<std::string>& names) {
  if (e.kind == FormulaKind::name) names.push_back(e.text);
  for (const Formula& operand : e.operands) collect_names(operand, names);
}

std::vector<CallOperand> arguments_of(const FormulaSpec& spec, const Formula& call, const CallRule& rule) {
  if (call.operands.empty() && rule.arguments == 2) return {{spec.output, nullptr, true}, {std::string(kLabelArray)}};
  if (call.operands.size() != rule.arguments)
    fail_in(spec, call, ExitCode::usage,
            concat(rule.definition->name, " takes ", rule.definition->arguments, ", found ", call.operands.size(),
                   call.operands.size() == 1 ? " argument" : " arguments"));
  std::vector<CallOperand> operands;
  for (const Formula& operand : call.operands) {
    check_operand(spec, operand);
    operands.push_back({spec.text.substr(operand.begin, operand.end - operand.begin), &operand});
  }
  return operands;
}

}  // namespace

void fail_in(const FormulaSpec& spec, const Formula& where, ExitCode code, std::string_view message) {
  const bool is_all = where.begin == 0 && where.end == spec.text.size() && where.operands.empty();
  if (is_all) throw UserError(std::string(message), code);
  fail_at(spec.what, spec.text, where.begin, where.end, message, code);
}

Call read_call(const FormulaSpec& spec, const Formula& call, const CallRule& rule, Options options) {
  Call made{.expression = &call, .rule = rule, .options = std::move(options), .operands = arguments_of(spec, call, rule)};
  for (const OptionDef& option : rule.definition->options)
    if (option.kind == OptionKind::weights && made.options.has(option.name) && made.options.is_name(option.name)) {
      made.operands.push_back({made.options.word(option.name)});
      made.named.push_back(option.name);
    }
  return made;
}

void collect_possible_outputs(const FormulaSpec& spec, const Call& call, std::vector<std::string>& names) {
  for (const CallOperand& operand : call.operands) {
    if (operand.is_output) names.push_back(spec.output);
    else if (operand.expression) collect_names(*operand.expression, names);
  }
}

void collect_possible_arrays(const Call& call, std::vector<std::string>& names) {
  for (const CallOperand& operand : call.operands) {
    if (operand.expression && operand.expression->kind == FormulaKind::name) names.push_back(operand.expression->text);
    else if (!operand.expression && !operand.is_output) names.push_back(operand.name);
  }
}

}  // namespace gcomp::passes
