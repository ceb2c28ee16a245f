#include "ir/text/parse.h"

#include <algorithm>
#include <map>

#include "ir/base/nearest.h"
#include "ir/ops/table.h"
#include "ir/text/parse_nest.h"
#include "ir/text/scanner.h"
#include "ir/text/spelling.h"
#include "ir/verify.h"

namespace gcomp::ir {
namespace {

double real(Scanner& in, std::string_view what) {
  const std::size_t at = in.next();
  const std::string_view text = in.accept_number();
  if (text.empty()) in.fail(at, "found ", in.found(), ", wanted ", what);
  const auto value = parse_number(text);
  if (!value) in.fail(at, "the number ", text, " does not fit a double");
  return *value;
}

void fill_from_hex(Scanner& in, Tensor& tensor) {
  const std::size_t at = in.next();
  const std::string_view digits = in.hex_text();
  if (digits.size() != 2 * tensor.bytes().size())
    in.fail(at, "found ", digits.size(), " hexadecimal digits, wanted ", 2 * tensor.bytes().size(), " for ",
            to_string(tensor.type()));
  auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
  for (std::size_t i = 0; i < tensor.bytes().size(); ++i)
    tensor.bytes()[i] = static_cast<std::byte>(digit(digits[2 * i]) * 16 + digit(digits[2 * i + 1]));
}

std::shared_ptr<const Tensor> tensor_value(Scanner& in) {
  const std::size_t at = in.next();
  const TensorType type = in.type();
  if (in.looking_at("<")) in.fail(in.next(), "the data of this constant was left out when the text was printed");
  // Nothing is allocated before the text has shown that it holds as much.
  const bool hex = in.looking_at("0x");
  if (hex) {
    const std::size_t data = in.next();
    if (in.hex_text().size() / 2 != static_cast<std::size_t>(type.bytes()))
      in.fail(data, "the data does not fill ", to_string(type));
    in.seek(data);
    auto tensor = std::make_shared<Tensor>(type);
    fill_from_hex(in, *tensor);
    return tensor;
  }
  in.expect("[", "or 0x\" with the elements of the constant");
  std::vector<std::pair<std::string_view, std::size_t>> elements;
  while (!in.accept("]")) {
    if (!elements.empty()) in.expect(",", "between elements");
    const std::size_t element_at = in.next();
    elements.emplace_back(in.accept_number(), element_at);
    if (elements.back().first.empty()) in.fail(element_at, "found ", in.found(), ", wanted a number");
  }
  if (static_cast<std::int64_t>(elements.size()) != type.elements())
    in.fail(at, "found ", elements.size(), " elements, wanted ", type.elements(), " for ", to_string(type));
  auto tensor = std::make_shared<Tensor>(type);
  for (std::size_t i = 0; i < elements.size(); ++i)
    if (!parse_element(*tensor, static_cast<std::int64_t>(i), elements[i].first))
      in.fail(elements[i].second, elements[i].first, " is no ", name_of(type.dtype));
  return tensor;
}

template <class T, class F>
std::vector<T> list(Scanner& in, const F& element) {
  std::vector<T> values;
  in.expect("[", "before a list");
  while (!in.accept("]")) {
    if (!values.empty()) in.expect(",", "between elements");
    values.push_back(element());
  }
  return values;
}

/// (2,4,8):(32,1,4)+16
StridedView strided_view(Scanner& in) {
  const auto numbers = [&in](std::string_view where) {
    std::vector<std::int64_t> numbers;
    in.expect("(", where);
    while (!in.accept(")")) {
      if (!numbers.empty()) in.expect(",", "between numbers");
      numbers.push_back(in.integer("an integer"));
    }
    return numbers;
  };
  StridedView view{.shape = numbers("before the shape of a view, or 'dense'"), .strides = {}};
  in.expect(":", "between shape and strides");
  view.strides = numbers("before strides");
  if (in.accept("+")) view.offset = in.integer("the offset of a view");
  return view;
}

Attribute attribute_value(Scanner& in, AttributeType type) {
  switch (type) {
    case AttributeType::flag: {
      if (in.accept_word("true")) return true;
      if (in.accept_word("false")) return false;
      in.fail(in.next(), "found ", in.found(), ", wanted true or false");
    }
    case AttributeType::integer: return in.integer("an integer");
    case AttributeType::real: return real(in, "a number");
    case AttributeType::text: return in.quoted_text("text");
    case AttributeType::dtype: return in.dtype("a dtype");
    case AttributeType::integers: return list<std::int64_t>(in, [&] { return in.integer("an integer"); });
    case AttributeType::reals: return list<double>(in, [&] { return real(in, "a number"); });
    case AttributeType::tensor: return tensor_value(in);
    case AttributeType::views:
      return list<std::optional<StridedView>>(
          in, [&] { return in.accept_word("dense") ? std::nullopt : std::optional(strided_view(in)); });
  }
  return false;
}

Attributes attributes_of(Scanner& in, const OpDef& op) {
  Attributes attributes;
  in.expect("{", "before attributes");
  while (!in.accept("}")) {
    if (!attributes.empty()) in.expect(",", "or '}' after an attribute");
    const std::size_t at = in.next();
    const std::string name(in.word("the name of an attribute"));
    auto spec = std::find_if(op.attributes.begin(), op.attributes.end(), [&](const AttributeSpec& s) { return s.name == name; });
    if (spec == op.attributes.end()) {
      std::vector<std::string> known;
      for (const AttributeSpec& s : op.attributes) known.emplace_back(s.name);
      in.fail(at, op.name, " has no attribute '", name, "', it has ", listing(known), did_you_mean(name, known));
    }
    if (attributes.find(name)) in.fail(at, "attribute '", name, "' is given twice");
    in.expect("=", "after the name of an attribute");
    attributes.set(name, attribute_value(in, spec->type));
  }
  return attributes;
}

class GraphParser {
 public:
  explicit GraphParser(Scanner& scanner) : in_(scanner) {}

  Graph run() {
    if (!in_.accept_word("graph")) in_.fail(in_.next(), "found ", in_.found(), ", wanted 'graph @name(...) -> (...) {'");
    graph_.set_name(in_.name('@', "the graph's name, as in @main"));
    in_.expect("(", "before the inputs");
    while (!in_.accept(")")) {
      if (!graph_.inputs().empty()) in_.expect(",", "between inputs");
      declare([&](const std::string& name) {
        TensorType type = in_.type();
        return graph_.add_input(std::move(type), name, role(Direction::input));
      });
    }
    in_.expect("->", "and the outputs after the inputs");
    const std::vector<Reference> outputs = references_in_parentheses();  // each with its role
    in_.expect("{", "before the nodes");
    while (!in_.accept("}")) {
      if (in_.accept_word("state")) state();
      else node();
    }
    for (const Reference& output : outputs) graph_.add_output(resolve(output), output.role);
    if (!in_.at_end()) in_.fail(in_.next(), "found ", in_.found(), " after the graph, wanted the end of the text");
    return std::move(graph_);
  }

 private:
  struct Reference {
    std::string name;
    std::size_t at = 0;
    Role role = Role::array;
  };

  std::vector<Reference> references_in_parentheses() {
    std::vector<Reference> list;
    in_.expect("(", "before the outputs");
    while (!in_.accept(")")) {
      if (!list.empty()) in_.expect(",", "between outputs");
      const std::size_t at = in_.next();
      list.push_back({in_.name('%', "an output, as in %loss"), at});
      list.back().role = role(Direction::output);
    }
    return list;
  }

  /// The word after an input or output that is not the model's own.
  Role role(Direction direction) {
    if (in_.peek_word().empty()) return Role::array;
    const std::size_t at = in_.next();
    const std::string_view word = in_.word("a role");
    const std::optional<Role> found = parse_role(word);
    if (found && definition_of(*found).direction == direction) return *found;
    const std::vector<std::string> known = role_names(direction);
    in_.fail(at, "unknown role '", word, "' of an ", direction == Direction::input ? "input" : "output", ", wanted ",
             listing(known), did_you_mean(word, known));
  }

  std::string fresh_name(std::string_view what) {
    const std::size_t at = in_.next();
    std::string name = in_.name('%', what);
    if (name.empty()) in_.fail(at, "a value needs a name");
    if (values_.count(name)) in_.fail(at, spelled('%', name), " is defined twice");
    return name;
  }

  /// "%name: " and what `make` reads.
  template <class F>
  Value* declare(const F& make) {
    const std::string name = fresh_name("a value, as in %x");
    in_.expect(":", "and a type after the name");
    Value* value = make(name);
    values_.emplace(name, value);
    return value;
  }

  Value* resolve(const Reference& reference) {
    auto found = values_.find(reference.name);
    if (found != values_.end()) return found->second;
    std::vector<std::string> known;
    for (const auto& [name, value] : values_) known.push_back(name);
    in_.fail(reference.at, "no value ", spelled('%', reference.name), " is defined above", did_you_mean(reference.name, known));
  }

  void state() {
    declare([&](const std::string& name) {
      TensorType type = in_.type();
      const std::size_t at = in_.next();
      const std::string_view word = in_.word("the role of the state");
      std::vector<std::string> roles;
      for (StateRole role :
           {StateRole::parameter, StateRole::running_statistic, StateRole::optimizer, StateRole::counter, StateRole::scratch}) {
        roles.emplace_back(name_of(role));
        if (word != name_of(role)) continue;
        std::optional<double> fill;
        if (in_.accept("=")) fill = real(in_, "the initial value of the state");
        return graph_.add_state(std::move(type), name, role, fill);
      }
      in_.fail(at, "unknown role '", word, "' of a state, wanted ", listing(roles), did_you_mean(word, roles));
    });
  }

  const OpDef& op() {
    const std::size_t at = in_.next();
    const std::string name(in_.word("an op"));
    if (const OpDef* found = find_op(name)) return *found;
    std::vector<std::string> known;
    for (const OpDef* candidate : ops::kTable) known.emplace_back(candidate->name);
    in_.fail(at, "unknown op '", name, "'", did_you_mean(name, known));
  }

  std::vector<Value*> operands() {
    std::vector<Value*> list;
    while (list.empty() ? in_.looking_at("%") || in_.peek_word() == "_" : in_.accept(",")) {
      const std::size_t at = in_.next();
      if (in_.accept_word("_")) list.push_back(nullptr);
      else list.push_back(resolve({in_.name('%', "an operand, or '_' for an absent one"), at}));
    }
    return list;
  }

  void node() {
    std::vector<std::string> names;
    const std::size_t start = in_.next();
    if (in_.looking_at("%")) {
      do {
        names.push_back(fresh_name("a result"));
        if (std::count(names.begin(), names.end(), names.back()) > 1)
          in_.fail(start, spelled('%', names.back()), " is defined twice");
      } while (in_.accept(","));
      in_.expect("=", "after the results");
    }
    const std::size_t op_at = in_.next();
    const OpDef& op = this->op();
    if (op.kind != Kind::kernel && op.results >= 0) check_names(op, op.results, names.size(), start);
    std::vector<Value*> operands = this->operands();
    Attributes attributes;
    if (op.kind != Kind::kernel || !op.attributes.empty())
      if (in_.looking_at("{")) attributes = attributes_of(in_, op);
    std::vector<std::pair<TensorType, std::size_t>> types;
    const std::size_t types_at = in_.next();
    if (!names.empty() && in_.accept(":")) {
      do {
        const std::size_t at = in_.next();
        types.emplace_back(in_.type(), at);
      } while (in_.accept(","));
      if (types.size() != names.size()) in_.fail(types_at, "found ", types.size(), " types, wanted ", names.size());
    }
    const std::string origin = in_.looking_at("@") ? in_.name('@', "where the node comes from") : "";
    Node* made = op.kind == Kind::kernel ? kernel(op, std::move(operands), std::move(attributes), types, origin, names, op_at)
                                         : plain(op, std::move(operands), std::move(attributes), types, origin, names, op_at);
    for (Value* result : made->results) values_.emplace(result->name, result);
  }

  void check_names(const OpDef& op, int results, std::size_t names, std::size_t at) {
    if (static_cast<int>(names) != results) in_.fail(at, op.name, " has ", results, " results, found ", names, " names");
  }

  using Types = std::vector<std::pair<TensorType, std::size_t>>;

  Node* plain(const OpDef& op, std::vector<Value*> operands, Attributes attributes, const Types& types, const std::string& origin,
              const std::vector<std::string>& names, std::size_t at) {
    Node* made = nullptr;
    try {
      made = graph_.append(op, std::move(operands), std::move(attributes), origin, names);
    } catch (const UserError& error) { in_.fail_at(at, error.what(), error.code()); }
    check_names(op, static_cast<int>(made->results.size()), names.size(), at);
    for (std::size_t i = 0; i < types.size(); ++i)
      if (!(types[i].first == made->results[i]->type))
        in_.fail(types[i].second, "found type ", to_string(types[i].first), ", but ", op.name, " gives ",
                 to_string(made->results[i]->type));
    return made;
  }

  Node* kernel(const OpDef& op, std::vector<Value*> operands, Attributes attributes, const Types& types, const std::string& origin,
               const std::vector<std::string>& names, std::size_t at) {
    if (names.empty() || types.empty())
      in_.fail(in_.next(), "a kernel needs results and their types, as in %y = ", op.name, " %x : f32[4] {");
    NestScope scope;
    for (const Value* operand : operands) {
      if (!operand) in_.fail(at, "the operands of a kernel are never absent");
      scope.operands.push_back(operand->type);
    }
    for (const auto& [type, type_at] : types) scope.results.push_back(type);
    if (&op == &ops::kMultiKernel) {
      const Attribute* alike = attributes.find("alike");
      scope.flat = !alike || !std::holds_alternative<bool>(*alike) || !std::get<bool>(*alike);
      const std::int64_t segments = attributes.find("segments") ? attributes.integer("segments") : 0;
      const auto divides = [&](std::size_t count) { return segments > 0 && count % static_cast<std::size_t>(segments) == 0; };
      if (!divides(operands.size()) || !divides(names.size()))
        in_.fail(at, operands.size(), " operands and ", names.size(), " results do not fall into ", segments, " segments");
      scope.operands.resize(operands.size() / static_cast<std::size_t>(segments));
      scope.results.resize(names.size() / static_cast<std::size_t>(segments));
    } else {
      for (const Value* operand : operands) scope.operand_names.push_back(operand->name);
      scope.result_names = names;
    }
    in_.expect("{", "and the body of the kernel");
    LoopNest nest = parse_nest(in_, scope);
    std::vector<TensorType> results;
    for (const auto& [type, type_at] : types) results.push_back(type);
    return graph_.append_kernel(op, std::move(operands), std::move(nest), std::move(results), origin, names, std::move(attributes));
  }

  Scanner& in_;
  Graph graph_{""};
  std::map<std::string, Value*> values_;
};

}  // namespace

TensorType parse_type(std::string_view text) {
  Scanner scanner(text, "<type>", 1);
  TensorType type = scanner.type();
  if (!scanner.at_end()) scanner.fail(scanner.next(), "found ", scanner.found(), " after the type");
  return type;
}

Tensor parse_tensor(std::string_view text) {
  Scanner scanner(text, "<tensor>", 1);
  Tensor tensor = *tensor_value(scanner);
  if (!scanner.at_end()) scanner.fail(scanner.next(), "found ", scanner.found(), " after the tensor");
  return tensor;
}

Attributes parse_attributes(const OpDef& op, std::string_view text) {
  Scanner scanner(text, "<attributes>", 1);
  Attributes attributes;
  if (!scanner.at_end()) attributes = attributes_of(scanner, op);
  if (!scanner.at_end()) scanner.fail(scanner.next(), "found ", scanner.found(), " after the attributes");
  return normalized(op, attributes);
}

Graph parse(std::string_view text, const ParseOptions& options) {
  Scanner scanner(text, options.file, options.first_line);
  Graph graph = GraphParser(scanner).run();
  if (const std::vector<std::string> broken = find_violations(graph); !broken.empty())
    throw UserError(concat(options.file, ": ", broken.front()));
  return graph;
}

}  // namespace gcomp::ir
