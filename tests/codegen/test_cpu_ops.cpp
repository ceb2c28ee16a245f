// Every op of the table, on its samples and on shapes that hit each form of loop, as compiled C++ against the interpreter. Running
// the tasks one by one in reverse order must give the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "ir/builder.h"
#include "ir/expand.h"
#include "ir/interpret.h"
#include "tests/codegen/compiled_kernels.h"
#include "tests/ops/samples.h"

namespace gcomp::tests {
namespace {

using namespace ir;

struct KernelCase {
  std::string label;
  const OpDef* op = nullptr;
  std::vector<TensorType> operand_types, result_types;
  Attributes attributes;
  std::vector<Tensor> operands;
  double tolerance = 0;
  std::size_t kernel = 0;
};

bool has_loops(const OpDef& op) {
  switch (op.kind) {
    case Kind::pointwise:
    case Kind::reduce:
    case Kind::contract:
    case Kind::view:
    case Kind::index:
    case Kind::scan:
    case Kind::random: return true;
    case Kind::constant: return op.loops != nullptr;
    case Kind::update:
    case Kind::collective:
    case Kind::barrier:
    case Kind::composite:
    case Kind::kernel: return false;
  }
  return false;
}

double tolerance_of(const std::vector<TensorType>& results, std::int64_t terms) {
  const double grows = 1 + std::sqrt(static_cast<double>(terms));
  switch (results[0].dtype) {
    case DType::f64: return 1e-13 * grows;
    case DType::f32: return 1e-6 * grows;
    case DType::f16: return 2e-3;
    case DType::bf16: return 2e-2;
    default: return 0;
  }
}

class Cases {
 public:
  void add(const OpCase& c, DType to) {
    KernelCase made{c.label + "_" + std::string(gcomp::name_of(to)), c.op, c.operands, {}, c.attributes, {}, 0, 0};
    const auto convert = [&](DType& dtype) {
      if (is_float(dtype)) dtype = to;
    };
    for (TensorType& type : made.operand_types) convert(type.dtype);
    Attributes attributes;
    for (auto [name, value] : made.attributes) {
      if (auto* dtype = std::get_if<DType>(&value)) convert(*dtype);
      attributes.set(name, value);
    }
    made.attributes = normalized(*c.op, attributes);
    made.result_types = infer_types(*c.op, made.operand_types, made.attributes);
    std::int64_t terms = 1;
    for (const TensorType& type : made.operand_types) {
      made.operands.push_back(random_tensor(type, c.low, c.high, random_));
      terms = std::max(terms, type.elements());
    }
    made.tolerance = tolerance_of(made.result_types, terms);
    const LoopNest nest = loops_of(*made.op, made.operand_types, made.result_types, made.attributes);
    made.kernel = kernels_.add({nest, made.operand_types, made.result_types});
    cases_.push_back(std::move(made));
  }

  void add(const std::string& op, const std::string& operands, const std::string& attributes, double low, double high, DType to) {
    const OpDef* found = find_op(op);
    ASSERT_NE(found, nullptr) << op;
    add(OpCase{found, types_from(operands), parse_attributes(*found, attributes), low, high,
               concat(op, "(", operands, ")", attributes)},
        to);
  }

  void check() {
    kernels_.compile();
    for (const KernelCase& c : cases_) {
      Graph graph;
      std::vector<Value*> inputs;
      std::map<std::string, Tensor> values;
      for (std::size_t i = 0; i < c.operands.size(); ++i) {
        inputs.push_back(graph.add_input(c.operand_types[i], concat("x", i)));
        values.emplace(inputs.back()->name, c.operands[i]);
      }
      graph.outputs() = graph.append(*c.op, inputs, c.attributes)->results;
      const std::vector<Tensor> expected = interpret(graph, values).outputs;
      int fault = 0;
      const std::vector<Tensor> actual = kernels_.run(c.kernel, c.operands, TaskOrder::together, &fault);
      const std::vector<Tensor> split = kernels_.run(c.kernel, c.operands, TaskOrder::reversed);
      EXPECT_EQ(fault, 0) << c.label;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_LE(largest_difference(actual[i], expected[i]), c.tolerance) << c.label << "\n" << kernels_.text(c.kernel);
        EXPECT_TRUE(actual[i] == split[i]) << c.label << ": " << kernels_.tasks(c.kernel) << " tasks";
      }
    }
  }

 private:
  std::mt19937 random_{7};
  CompiledKernels kernels_;
  std::vector<KernelCase> cases_;
};

TEST(CpuOps, SamplesOfTheTable) {
  Cases cases;
  for (const OpCase& c : op_cases())
    if (has_loops(*c.op))
      for (DType to : {DType::f64, DType::f32}) cases.add(c, to);
  cases.check();
}

TEST(CpuOps, HalfPrecision) {
  Cases cases;
  for (const char* op : {"add", "exp", "relu", "tanh", "maximum", "less"}) {
    const OpDef* found = find_op(op);
    for (DType to : {DType::f16, DType::bf16}) {
      OpCase c = pointwise_case(*found);
      for (TensorType& type : c.operands) type.shape = {5, 37};
      cases.add(c, to);
    }
  }
  for (DType to : {DType::f16, DType::bf16}) {
    cases.add("reduce_sum", "f32[9,33]", "{axes=[1]}", -1, 1, to);
    cases.add("reduce_sum", "f32[33,70]", "{axes=[0]}", -1, 1, to);
    cases.add("reduce_max", "f32[9,33]", "{axes=[1]}", -1, 1, to);
    cases.add("matmul", "f32[5,20] f32[20,7]", "", -1, 1, to);
    cases.add("scatter_add", "i64[20] f32[20,3]", "{axis=0, size=5}", 0, 4, to);
    cases.add("cumulative_sum", "f32[3,20]", "{axis=1}", -1, 1, to);
    cases.add("transpose", "f32[20,30]", "{permutation=[1,0]}", -1, 1, to);
  }
  cases.check();
}

// Into zeros of every type, whatever words its name in C++ has: rows, and single elements.
TEST(CpuOps, ScattersOfIntegers) {
  Cases cases;
  for (const DType dtype : {DType::i8, DType::i16, DType::i32, DType::i64, DType::u8, DType::u16, DType::u32, DType::u64})
    for (const char* row : {"[20]", "[20,40]"})
      cases.add("scatter_add", concat("i64[20] ", gcomp::name_of(dtype), row), "{axis=0, size=5}", 0, 4, DType::f32);
  cases.check();
}

TEST(CpuOps, Reductions) {
  Cases cases;
  for (DType to : {DType::f64, DType::f32}) {
    for (const char* op : {"reduce_sum", "reduce_max", "reduce_min", "arg_max", "arg_min"}) {
      cases.add(op, "f64[3,1000]", "{axes=[1]}", -1, 1, to);
      cases.add(op, "f64[1000,3]", "{axes=[0]}", -1, 1, to);
      cases.add(op, "f64[1000,200]", "{axes=[0]}", -1, 1, to);
      cases.add(op, "f64[300,1000]", "{axes=[1]}", -1, 1, to);
      cases.add(op, "f64[17,17,17]", "{axes=[0,2]}", -1, 1, to);
      cases.add(op, "f64[17,17,17]", "{axes=[1]}", -1, 1, to);
      cases.add(op, "f64[5,4,3,2]", "{axes=[0,1,2,3]}", -1, 1, to);
      cases.add(op, "f64[40,2,7]", "{axes=[1]}", -1, 1, to);
      cases.add(op, "f64[2,1,70]", "{axes=[1,2]}", -1, 1, to);
      cases.add(op, "f64[5]", "{axes=[]}", -1, 1, to);
    }
    cases.add("reduce_sum", "f64[3,0]", "{axes=[1]}", -1, 1, to);
    cases.add("reduce_max", "f64[0,4]", "{axes=[0]}", -1, 1, to);
    cases.add("reduce_product", "f64[7,100]", "{axes=[1]}", 0.9, 1.1, to);
    cases.add("reduce_sum", "i32[7,100]", "{axes=[1]}", -9, 9, to);
    cases.add("reduce_max", "u8[100,30]", "{axes=[0]}", 0, 200, to);
    cases.add("reduce_max", "bool[7,100]", "{axes=[1]}", 0, 1, to);
    cases.add("arg_max", "i64[7,100]", "{axes=[1]}", -5, 5, to);
  }
  cases.check();
}

TEST(CpuOps, ViewsAndWindows) {
  Cases cases;
  for (DType to : {DType::f64, DType::f32}) {
    cases.add("transpose", "f64[1000,17]", "{permutation=[1,0]}", -1, 1, to);
    cases.add("transpose", "f64[100,130]", "{permutation=[1,0]}", -1, 1, to);
    cases.add("transpose", "f64[4,17,3,32]", "{permutation=[0,2,1,3]}", -1, 1, to);
    cases.add("transpose", "f64[3,16,17,5]", "{permutation=[0,3,1,2]}", -1, 1, to);
    cases.add("transpose", "f64[2,3,5,7]", "{permutation=[3,2,1,0]}", -1, 1, to);
    cases.add("reshape", "f64[12,100]", "{shape=[100,12]}", -1, 1, to);
    cases.add("broadcast", "f64[64]", "{axes=[1], shape=[1000,64]}", -1, 1, to);
    cases.add("broadcast", "f64[1000,1]", "{axes=[0,1], shape=[1000,64]}", -1, 1, to);
    cases.add("pad", "f64[3,20,30]", "{low=[0,1,2], high=[0,3,1], value=0.5}", -1, 1, to);
    cases.add("pad", "f64[50,300]", "{low=[-3,-1], high=[-4,7]}", -1, 1, to);
    cases.add("slice", "f64[50,300]", "{starts=[3,299], sizes=[20,100], steps=[2,-2]}", -1, 1, to);
    cases.add("unslice", "f64[20,100]", "{starts=[3,299], shape=[50,300], steps=[2,-2]}", -1, 1, to);
    cases.add("unslice", "f64[20,101]", "{starts=[0,0], shape=[20,303], steps=[1,3]}", -1, 1, to);
    cases.add("concat", "f64[20,3] f64[20,50] f64[20,1]", "{axis=1}", -1, 1, to);
    cases.add("concat", "f64[2,30] f64[5,30] f64[1,30]", "{axis=0}", -1, 1, to);
    cases.add("concat", "f64[3,20] f64[1,20] f64[2,20] f64[3,20] f64[3,20] f64[1,20] f64[3,20]", "{axis=0}", -1, 1, to);
    cases.add("concat", "f64[3,2] f64[3,2] f64[3,2] f64[3,2] f64[3,2] f64[3,2] f64[3,2] f64[3,2] f64[3,2] f64[3,2] f64[3,2]",
              "{axis=1}", -1, 1, to);
    cases.add("window", "f64[2,3,17,18]", "{kernel=[3,3], strides=[2,2], low=[1,1], high=[1,1], dilations=[1,1], value=-1}", -1, 1,
              to);
    cases.add("window_sum", "f64[2,3,9,9,2,2]",
              "{kernel=[2,2], strides=[2,2], low=[0,0], high=[0,0], dilations=[1,1], sizes=[18,18]}", -1, 1, to);
    cases.add("window_sum", "f64[2,3,9,9,3,3]",
              "{kernel=[3,3], strides=[2,2], low=[1,1], high=[1,1], dilations=[1,1], sizes=[17,18]}", -1, 1, to);
    cases.add("window_sum", "f64[2,15,2]", "{kernel=[2], strides=[3], low=[0], high=[0], dilations=[2], sizes=[45]}", -1, 1, to);
    cases.add("iota", "", "{dtype=i64, shape=[30,40], axis=0}", 0, 1, to);
    cases.add("full", "", "{dtype=f64, shape=[30,40], value=0.1}", 0, 1, to);
  }
  cases.check();
}

TEST(CpuOps, PositionsAndScans) {
  Cases cases;
  for (DType to : {DType::f64, DType::f32}) {
    cases.add("gather", "f64[65,128] i64[12,64]", "{axis=0}", 0, 64, to);
    cases.add("gather", "f64[30,65] i32[17]", "{axis=1}", -30, 64, to);
    cases.add("gather", "f64[30,65] u8[1000]", "{axis=0}", 0, 29, to);
    cases.add("scatter_add", "i64[12,64] f64[12,64,128]", "{axis=0, size=65}", 0, 64, to);
    cases.add("scatter_add", "i64[1000] f64[1000,3]", "{axis=0, size=65}", 0, 64, to);
    cases.add("scatter_add", "i64[100] f64[3,100]", "{axis=1, size=7}", -7, 6, to);
    cases.add("scatter_add", "i32[50000] f64[50000]", "{axis=0, size=1000}", 0, 999, to);
    cases.add("cumulative_sum", "f64[17,100]", "{axis=1}", -1, 1, to);
    cases.add("cumulative_sum", "f64[17,100,5]", "{axis=1, reverse=true}", -1, 1, to);
    cases.add("cumulative_product", "f64[300,100]", "{axis=0, exclusive=true}", 0.9, 1.1, to);
    cases.add("random_uniform", "i64[] i64[]", "{shape=[17,1001], op_id=3}", 0, 1000, to);
    cases.add("random_uniform", "i64[] i64[] i64[1]", "{shape=[17,1001], op_id=3}", 0, 1000, to);
  }
  cases.check();
}

TEST(CpuOps, Contractions) {
  Cases cases;
  for (DType to : {DType::f64, DType::f32}) {
    cases.add("matmul", "f64[20,30] f64[30,40]", "", -1, 1, to);
    cases.add("matmul", "f64[3,30,20] f64[3,40,30]", "{transpose_a=true, transpose_b=true}", -1, 1, to);
    cases.add("matmul", "i32[20,30] i32[30,40]", "", -9, 9, to);
    cases.add("matmul", "f64[20,0] f64[0,40]", "", -1, 1, to);
    cases.add("convolution", "f64[2,6,15,16] f64[8,3,3,3]", "{strides=[2,1], low=[1,1], high=[1,1], dilations=[1,2], groups=2}", -1,
              1, to);
    cases.add("convolution", "f64[2,15,16,6] f64[8,3,3,3]",
              "{strides=[1,1], low=[1,1], high=[1,1], dilations=[1,1], groups=2, channels_last=true}", -1, 1, to);
    cases.add("convolution_input_gradient", "f64[2,8,8,8] f64[8,3,3,3]",
              "{strides=[2,2], low=[1,1], high=[1,1], dilations=[1,1], groups=2, sizes=[15,16]}", -1, 1, to);
    cases.add("convolution_weight_gradient", "f64[2,6,15,16] f64[2,8,8,8]",
              "{strides=[2,2], low=[1,1], high=[1,1], dilations=[1,1], groups=2, sizes=[3,3]}", -1, 1, to);
  }
  cases.check();
}

TEST(CpuOps, Pointwise) {
  Cases cases;
  for (const OpDef* op : ops::kTable) {
    if (op->kind != Kind::pointwise) continue;
    OpCase c = pointwise_case(*op);
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{3}, Shape{1000}, Shape{70, 1000}, Shape{0}}) {
      for (TensorType& type : c.operands) type.shape = shape;
      for (DType to : {DType::f64, DType::f32}) cases.add(c, to);
    }
  }
  for (const char* from : {"f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"})
    for (const char* to : {"f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"})
      cases.add("cast", concat(from, "[77]"), concat("{to=", to, "}"), 0, 120, DType::f32);
  cases.check();
}

}  // namespace
}  // namespace gcomp::tests
