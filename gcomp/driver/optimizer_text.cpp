#include "gcomp/driver/optimizer_text.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/error.h"
#include "ir/text/parse.h"
#include "passes/training/optimizers/graph_rule.h"
#include "passes/training/optimizers/rule.h"
#include "runtime/files/atomic_file.h"

namespace gcomp {

Var OptimizerStep::parameter() const { return update_.p; }
Var OptimizerStep::gradient() const { return update_.g; }
Var OptimizerStep::learning_rate() const { return update_.s.learning_rate; }
Var OptimizerStep::step() const { return update_.s.step; }
Var OptimizerStep::spread(Var scalar) const { return update_.spread(scalar); }
Var OptimizerStep::state(std::string_view name, double initial) { return update_.state(name, initial); }
void OptimizerStep::update(Var state, Var value) {
  update_.b.require_own("update: ", state);
  update_.b.update(state.value, value);
}

namespace driver {
namespace {

constexpr std::string_view kEnding = ".gir";
constexpr std::uintmax_t kMostBytes = 1 << 20;

class FunctionRule final : public passes::OwnRule {
 public:
  FunctionRule(std::string name, Function<Var(OptimizerStep&)> rule) : name_(std::move(name)), rule_(std::move(rule)) {}

  std::string_view name() const override { return name_; }
  Var update(passes::ParameterUpdate& parameter) const override {
    OptimizerStep step(parameter);
    const Var value = rule_(step);
    check_user(value && value.type() == parameter.p.type(), "optimizer '", name_, "' gives ",
               value ? to_string(value.type()) : "nothing", " for parameter '", parameter.parameter->name, "', which is ",
               to_string(parameter.p.type()));
    return value;
  }

 private:
  std::string name_;
  Function<Var(OptimizerStep&)> rule_;
};

}  // namespace

passes::OptimizerSpec read_optimizer(std::string_view text, std::string_view what) {
  if (!text.ends_with(kEnding)) return passes::OptimizerSpec(text, what);
  const std::string path(text);
  const std::vector<std::byte> bytes = runtime::read_file(path, kMostBytes);
  ir::Graph rule = ir::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, {.file = path});
  return passes::OptimizerSpec(passes::rule_of_graph(std::move(rule), path));
}

passes::OptimizerSpec optimizer_of(const gcomp::Optimizer& optimizer) {
  passes::OptimizerSpec made = optimizer.rule
                                   ? passes::OptimizerSpec(std::make_shared<const FunctionRule>(optimizer.text, optimizer.rule))
                                   : read_optimizer(optimizer.text, "optimizer");
  made.check("optimizer");
  if (optimizer.turned_momentum) made.turn_momentum("optimizer");
  return made;
}

}  // namespace driver
}  // namespace gcomp
