// A graph compiled for the CPU, fused and op by op, in planned memory, against the interpreter.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>

#include "codegen/generate.h"
#include "ir/expand.h"
#include "ir/interpret.h"
#include "passes/fusion/fuse.h"
#include "passes/memory/plan_memory.h"
#include "passes/simplify.h"
#include "runtime/device.h"
#include "runtime/validate.h"
#include "tests/codegen/compiled_kernels.h"
#include "tests/device_options.h"
#include "tests/ops/samples.h"

namespace gcomp::tests {

/// Values of a graph's inputs and states, and what the interpreter makes of them.
struct Interpreted {
  explicit Interpreted(const ir::Graph& graph, double low = -1, double high = 1) {
    std::mt19937 random(11);
    for (const ir::Value* input : graph.inputs()) values.emplace(input->name, random_tensor(input->type, low, high, random));
    for (const ir::State& state : graph.states())
      values.emplace(state.value->name, state.fill ? Tensor::of(state.value->type.dtype, state.value->type.shape, {*state.fill})
                                                   : random_tensor(state.value->type, low, high, random));
    results = ir::interpret(graph, values);
  }

  std::map<std::string, Tensor> values;
  ir::InterpretResult results;
};

/// Runs the graph on the CPU, through fusion or op by op, and compares all outputs and states with the interpreter's.
inline void check_graph(ir::Graph graph, const Interpreted& interpreted, bool fused, double tolerance) {
  const auto& [values, expected] = interpreted;
  ir::expand(graph);
  passes::simplify(graph);
  if (fused) passes::fuse(graph);
  const runtime::Program program = codegen::generate(graph, passes::plan_memory(graph), {});
  ASSERT_NO_THROW(runtime::validate(program));
  std::vector<std::byte> binary;
  std::vector<Tensor> of_one_thread;
  for (int threads : {1, 2}) {
    auto device = runtime::open_device(runtime::TargetKind::cpu, test::device_options(threads));
    auto states = device->allocate_states();
    auto executable = device->load(program, states, binary);
    binary.assign(executable->kernel_binary().begin(), executable->kernel_binary().end());
    for (const ir::Value* input : graph.inputs()) executable->set_input(input->name, values.at(input->name));
    for (const ir::State& state : graph.states()) states->write(state.value->name, values.at(state.value->name));
    executable->run();
    for (std::size_t i = 0; i < expected.outputs.size(); ++i) {
      const Tensor output = executable->output(i);
      EXPECT_LE(largest_difference(output, expected.outputs[i]), tolerance) << "output " << i << (fused ? ", fused" : ", op by op");
      if (threads == 1) of_one_thread.push_back(output);
      else EXPECT_TRUE(output == of_one_thread[i]) << "output " << i << " depends on the number of threads";
    }
    for (const auto& [name, value] : expected.states)
      EXPECT_LE(largest_difference(states->read(name), value), tolerance) << "state " << name << (fused ? ", fused" : ", op by op");
  }
}

inline void check_both(const std::function<ir::Graph()>& make, double tolerance, double low = -1, double high = 1) {
  const Interpreted interpreted(make(), low, high);
  for (const bool fused : {false, true}) check_graph(make(), interpreted, fused, tolerance);
}

}  // namespace gcomp::tests
