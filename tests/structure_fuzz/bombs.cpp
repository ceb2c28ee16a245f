#include "tests/structure_fuzz/bombs.h"

#include <array>

#include "tests/onnx/model_builder.h"

namespace gcomp::tests {
namespace {

constexpr std::int64_t kLongest = 5000;                // nodes of a chain
constexpr std::int64_t kHuge = std::int64_t{1} << 50;  // elements that a model may only declare
constexpr int kFloat = 1, kInteger = 7, kBool = 9;

struct Bomb {
  const char* name;
  void (*make)(Random& random, ModelBuilder& m, std::int64_t size);
  std::int64_t most;
};

std::string value(std::int64_t i) { return "v" + std::to_string(i); }

/// x, then `size` nodes, each of the one before.
void chain_of(ModelBuilder& m, const char* op, std::int64_t size, const std::vector<std::string>& more = {},
              const std::vector<OnnxAttribute>& attributes = {}) {
  std::string last = "x";
  for (std::int64_t i = 0; i < size; ++i) {
    std::vector<std::string> inputs{last};
    inputs.insert(inputs.end(), more.begin(), more.end());
    m.node(op, inputs, {value(i)}, attributes);
    last = value(i);
  }
  m.output(last);
}

void unary_chain(Random& random, ModelBuilder& m, std::int64_t size) {
  constexpr std::array kOps{"Relu", "Exp", "Softmax", "LogSoftmax", "Identity", "Sigmoid", "Gelu", "Neg", "Sqrt", "Erf"};
  m.input("x", {"4", "8"});
  chain_of(m, kOps[pick(random, kOps.size())], size);
}

void transpose_chain(Random&, ModelBuilder& m, std::int64_t size) {
  m.input("x", {"4", "8"});
  chain_of(m, "Transpose", size);
}

void product_chain(Random&, ModelBuilder& m, std::int64_t size) {
  m.input("x", {"4", "8"}).floats("w.weight", {8, 8}, std::vector<float>(64, 0.1F));
  chain_of(m, "MatMul", size, {"w.weight"});
}

/// x + x, x * x of the value before: the text of an expanded term would double with each node.
void square_chain(Random& random, ModelBuilder& m, std::int64_t size) {
  m.input("x", {"4", "8"});
  std::string last = "x";
  for (std::int64_t i = 0; i < size; ++i) {
    m.node(pick(random, 2) ? "Add" : "Mul", {last, last}, {value(i)});
    last = value(i);
  }
  m.output(last);
}

void residual_chain(Random&, ModelBuilder& m, std::int64_t size) {
  m.input("x", {"4", "8"}).floats("w.weight", {8, 8}, std::vector<float>(64, 0.1F));
  std::string last = "x";
  for (std::int64_t i = 0; i < size; ++i) {
    m.node("Softmax", {last}, {value(3 * i)}).node("MatMul", {value(3 * i), "w.weight"}, {value(3 * i + 1)});
    m.node("Add", {last, value(3 * i + 1)}, {value(3 * i + 2)});
    last = value(3 * i + 2);
  }
  m.output(last);
}

void doubling_concat(Random& random, ModelBuilder& m, std::int64_t size) {
  if (pick(random, 2)) m.input("x", {"4", "8"});
  else m.floats("x", {4, 8}, std::vector<float>(32, 0.5F));
  std::string last = "x";
  for (std::int64_t i = 0; i < size; ++i) {
    m.node("Concat", {last, last}, {value(i)}, {{"axis", 0}});
    last = value(i);
  }
  m.output(last);
}

void wide(Random& random, ModelBuilder& m, std::int64_t size) {
  constexpr std::array kOps{"Sum", "Max", "Mean", "Concat"};
  m.input("x", {"4", "8"});
  std::vector<std::string> inputs;
  const bool same = pick(random, 2) != 0;
  for (std::int64_t i = 0; i < size; ++i) {
    if (!same) m.node("Relu", {"x"}, {value(i)});
    inputs.push_back(same ? "x" : value(i));
  }
  m.node(kOps[pick(random, kOps.size())], inputs, {"y"}, {{"axis", 0}}).output("y");
}

::onnx::AttributeProto* add_graph(::onnx::NodeProto& node, const char* name) {
  auto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(::onnx::AttributeProto::GRAPH);
  return attribute;
}

/// A loop whose state doubles each time, `size` times.
void doubling_loop(Random& random, ModelBuilder& m, std::int64_t size) {
  m.input("x", {"4", "8"}).integers("trips", {}, {size});
  m.node("Loop", {"trips", "", "x"}, {"y"});
  auto* node = m.model.mutable_graph()->mutable_node(0);
  ModelBuilder body;
  body.input("i", {}, kInteger).input("go", {}, kBool).input("state", {});
  body.node("Identity", {"go"}, {"go_on"});
  body.node(pick(random, 2) ? "Concat" : "Add", {"state", "state"}, {"next"}, {{"axis", 0}});
  body.output("go_on", kBool).output("next");
  *add_graph(*node, "body")->mutable_g() = body.model.graph();
  m.output("y");
}

void nested_ifs(Random&, ModelBuilder& m, std::int64_t size) {
  m.input("x", {"4", "8"}).node("Constant", {}, {"yes"});
  auto* constant = m.model.mutable_graph()->mutable_node(0)->add_attribute();
  constant->set_name("value");
  constant->set_type(::onnx::AttributeProto::TENSOR);
  constant->mutable_t()->set_data_type(kBool);
  constant->mutable_t()->set_raw_data("\1");
  ModelBuilder inner;
  inner.node("Relu", {"x"}, {"out0"}).output("out0");
  ::onnx::GraphProto graph = inner.model.graph();
  for (std::int64_t i = 1; i <= size; ++i) {
    const std::string name = "out" + std::to_string(i);
    ModelBuilder outer;
    outer.node("If", {"yes"}, {name}).output(name);
    auto* node = outer.model.mutable_graph()->mutable_node(0);
    *add_graph(*node, "then_branch")->mutable_g() = graph;
    *add_graph(*node, "else_branch")->mutable_g() = graph;
    if (i < size && i > 12) add_graph(*node, "unused");
    graph = outer.model.graph();
    if (graph.ByteSizeLong() > (1 << 20)) break;
  }
  for (const auto& node : graph.node()) *m.model.mutable_graph()->add_node() = node;
  m.output(graph.output(0).name());
}

/// Function i calls function i - 1 twice; function 0 calls, now and then, the last one from within an If.
void calling_functions(Random& random, ModelBuilder& m, std::int64_t size) {
  m.model.set_ir_version(10);
  auto* opset = m.model.add_opset_import();
  opset->set_domain("local");
  opset->set_version(1);
  const bool recursive = pick(random, 3) == 0;
  for (std::int64_t i = 0; i < size; ++i) {
    auto* function = m.model.add_functions();
    function->set_name("f" + std::to_string(i));
    function->set_domain("local");
    function->add_input("a");
    function->add_output("b");
    for (const char* domain : {"", "local"}) {
      auto* import = function->add_opset_import();
      import->set_domain(domain);
      import->set_version(domain[0] ? 1 : 20);
    }
    const auto call = [&](const std::string& op, const char* in, const char* out) {
      auto* node = function->add_node();
      node->set_op_type(op);
      if (op != "Relu") node->set_domain("local");
      node->add_input(in);
      node->add_output(out);
      return node;
    };
    const std::string before = i == 0 ? "Relu" : "f" + std::to_string(i - 1);
    call(before, "a", "t");
    auto* second = call(before, "t", "b");
    if (i > 0 || !recursive) continue;
    ModelBuilder branch;
    branch.node("f" + std::to_string(size - 1), {"t"}, {"inner"}).output("inner");
    branch.model.mutable_graph()->mutable_node(0)->set_domain("local");
    second->Clear();
    second->set_op_type("If");
    second->add_input("a");
    second->add_output("b");
    for (const char* name : {"then_branch", "else_branch"}) *add_graph(*second, name)->mutable_g() = branch.model.graph();
  }
  m.input("x", {"4", "8"}, recursive ? kBool : kFloat).node("f" + std::to_string(size - 1), {"x"}, {"y"}).output("y");
  m.model.mutable_graph()->mutable_node(0)->set_domain("local");
}

void huge_input(Random& random, ModelBuilder& m, std::int64_t size) {
  m.input("x", {std::to_string(size), std::to_string(pick_size(random, size))});
  m.node("Relu", {"x"}, {"y"}).output("y");
}

/// One node that makes something of `size` elements from something small.
void growing_node(Random& random, ModelBuilder& m, std::int64_t size) {
  m.input("x", {"1", "1", "4", "4"}).integers("size", {1}, {size}).integers("shape", {4}, {1, 1, 4, size});
  m.integers("repeats", {4}, {1, size, 1, 1}).integers("zero", {}, {0}).integers("one", {}, {1}).integers("big", {}, {size});
  m.integers("pads", {8}, {0, 0, 0, size, 0, 0, 0, 1}).integers("ids", {3}, {0, 1, 2}).floats("off_on", {2}, {0, 1});
  m.integers("sizes", {4}, {1, 1, 4, size});
  switch (pick(random, 9)) {
    case 0: m.node("Expand", {"x", "repeats"}, {"y"}); break;
    case 1: m.node("Tile", {"x", "repeats"}, {"y"}); break;
    case 2: m.node("ConstantOfShape", {"size"}, {"y"}); break;
    case 3: m.node("Range", {"zero", "big", "one"}, {"y"}); break;
    case 4: m.node("Pad", {"x", "pads"}, {"y"}); break;
    case 5: m.node("OneHot", {"ids", "big", "off_on"}, {"y"}); break;
    case 6: m.node("Resize", {"x", "", "", "sizes"}, {"y"}, {{"mode", "linear"}, {"antialias", 1}}); break;
    case 7: m.node("Resize", {"x", "", "", "sizes"}, {"y"}, {{"mode", "cubic"}}); break;
    default:
      m.node("MaxPool", {"x"}, {"y"},
             {{"kernel_shape", std::vector<std::int64_t>{1, size}}, {"pads", std::vector<std::int64_t>{0, size - 1, 0, size - 1}}});
  }
  m.output("y");
}

/// Reductions, scans and sorts over one long axis.
void long_axis(Random& random, ModelBuilder& m, std::int64_t size) {
  m.input("x", {"2", std::to_string(size)}).integers("axis", {1}, {1}).integers("last", {}, {1}).integers("k", {1}, {size});
  switch (pick(random, 6)) {
    case 0: m.node("CumSum", {"x", "last"}, {"y"}); break;
    case 1: m.node("ReduceProd", {"x", "axis"}, {"y"}); break;
    case 2: m.node("Softmax", {"x"}, {"y"}); break;
    case 3: m.node("TopK", {"x", "k"}, {"y", "z"}); break;
    case 4: m.node("MatMul", {"x", "x"}, {"y"}); break;
    default: m.node("Einsum", {"x", "x", "x"}, {"y"}, {{"equation", "ab,cd,ef->abcdef"}});
  }
  m.output("y");
}

void split_and_join(Random&, ModelBuilder& m, std::int64_t size) {
  m.input("x", {"2", std::to_string(size)});
  std::vector<std::string> parts, mapped;
  for (std::int64_t i = 0; i < size; ++i) parts.push_back(value(i));
  m.node("Split", {"x"}, parts, {{"axis", 1}, {"num_outputs", size}});
  for (std::int64_t i = 0; i < size; ++i) {
    mapped.push_back("m" + std::to_string(i));
    m.node("Exp", {parts[static_cast<std::size_t>(i)]}, {mapped.back()});
  }
  m.node("Concat", mapped, {"y"}, {{"axis", 1}}).output("y");
}

void recurrent(Random& random, ModelBuilder& m, std::int64_t size) {
  m.input("x", {std::to_string(size), "2", "3"});
  m.floats("w.weight", {1, 16, 3}, std::vector<float>(48, 0.1F)).floats("r.weight", {1, 16, 4}, std::vector<float>(64, 0.1F));
  m.node("LSTM", {"x", "w.weight", "r.weight"}, {"y"},
         {{"hidden_size", 4}, {"direction", pick(random, 2) ? "forward" : "reverse"}});
  m.output("y");
}

void scatter_chain(Random& random, ModelBuilder& m, std::int64_t size) {
  m.integers("at", {1, 1}, {1});
  m.floats("row", {1, 8}, std::vector<float>(8, 2));
  if (pick(random, 2)) m.input("x", {"4", "8"});
  else m.floats("x", {4, 8}, std::vector<float>(32, 0.5F));
  chain_of(m, "ScatterND", size, {"at", "row"});
}

constexpr Bomb kBombs[] = {{"a chain of one operator", unary_chain, kLongest},
                           {"transposes in a chain", transpose_chain, kLongest},
                           {"products in a chain", product_chain, 500},
                           {"squares of squares", square_chain, kLongest},
                           {"residual blocks", residual_chain, 300},
                           {"Concat(c, c) repeated", doubling_concat, 60},
                           {"one node of many inputs", wide, kLongest},
                           {"a loop that doubles its state", doubling_loop, 2000},
                           {"nested Ifs", nested_ifs, 40},
                           {"functions that call each other", calling_functions, 60},
                           {"an input of huge shape", huge_input, kHuge},
                           {"a node that grows its operand", growing_node, kHuge},
                           {"an operator over a long axis", long_axis, kHuge},
                           {"a split of many parts, joined again", split_and_join, 1000},
                           {"a long recurrence", recurrent, 3000},
                           {"a chain of ScatterND", scatter_chain, 500}};

}  // namespace

std::string random_bomb(Random& random, std::string& name) {
  const Bomb& bomb = kBombs[pick(random, std::size(kBombs))];
  const std::int64_t size = pick_size(random, bomb.most);
  ModelBuilder model(20);
  bomb.make(random, model, size);
  name = std::string(bomb.name) + ", size " + std::to_string(size);
  return model.bytes();
}

}  // namespace gcomp::tests
