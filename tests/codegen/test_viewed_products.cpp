// Matrix products whose operands and results are strided views, on the CPU and as CUDA's generated kernels, against the
// interpreter, which reads and writes them by definition.
#include <gtest/gtest.h>

#include <map>

#include "codegen/target.h"
#include "ir/text/parse.h"
#include "tests/codegen/cuda_shim/program_runner.h"
#include "tests/codegen/graph_check.h"

namespace gcomp::tests {
namespace {

struct ViewedProduct {
  std::string label, operands, attributes;
};
const ViewedProduct kProducts[] = {
    {"heads", "%x: f32[40,96], %w: f32[2,3,16,24]", "operand_views=[(2,3,20,16):(1920,16,96,1)+48]"},
    {"keys", "%x: f32[2,3,20,16], %w: f32[40,96]", "operand_views=[dense, (2,3,20,16):(1920,16,96,1)+16], transpose_b=true"},
    {"turned", "%x: f32[40,96], %w: f32[2,3,20,8]", "operand_views=[(2,3,20,16):(1920,16,96,1)], transpose_a=true"},
    {"result", "%x: f32[2,3,20,16], %w: f32[2,3,16,24]", "result_views=[(2,3,20,24):(1440,24,72,1)]"},
    {"columns", "%x: f32[2,20,16], %w: f32[2,16,24]", "result_views=[(2,20,24):(480,1,20)]"},
    {"all", "%x: f32[40,96], %w: f32[40,96]",
     "operand_views=[(2,3,20,16):(1920,16,96,1)+48, (2,3,20,16):(1920,16,96,1)], "
     "result_views=[(2,3,20,20):(1200,20,60,1)], transpose_b=true"},
    {"shared", "%x: f32[3,20,16], %w: f32[5,16,24]", "operand_views=[dense, (3,16,24):(0,24,1)+768]"},
    {"odd", "%x: f32[13,29], %w: f32[9,17]", "operand_views=[(12,7):(29,1)+33, (7,5):(17,1)+20]"},
    {"apart", "%x: f32[13,29], %w: f32[9,34]", "operand_views=[(6,7):(58,3)+2, (7,5):(34,6)+1]"},
    {"one", "%x: f32[40], %w: f32[40]", "operand_views=[(1,8):(0,1)+3, (8,1):(1,0)+11]"},
    {"batches", "%x: f32[96], %w: f32[96]",
     "operand_views=[(2,2,2,2,2,3):(3,6,12,48,1,8), (2,2,2,2,3,1):(6,0,12,24,1,0)], transpose_a=false"},
};

ir::Graph graph_of(const ViewedProduct& product, DType dtype) {
  std::string operands = product.operands;
  for (std::size_t at = 0; (at = operands.find("f32", at)) != std::string::npos; ++at)
    operands.replace(at, 3, std::string(name_of(dtype)));
  return ir::parse("graph @g(" + operands + ") -> (%y) {\n  %y = matmul %x, %w {" + product.attributes + "}\n}");
}

double tolerance_of(DType dtype) {
  return dtype == DType::f64 ? 1e-13 : dtype == DType::f32 ? 2e-5 : dtype == DType::f16 ? 2e-2 : 1e-1;
}

TEST(ViewedProducts, OnTheCpu) {
  for (const ViewedProduct& product : kProducts)
    for (const DType dtype : {DType::f32, DType::f64}) {
      SCOPED_TRACE(product.label);
      check_both([&] { return graph_of(product, dtype); }, tolerance_of(dtype));
    }
}

void check_on_cuda(DType dtype, const std::string& architecture, cuda_shim::Products products) {
  for (const ViewedProduct& product : kProducts) {
    SCOPED_TRACE(product.label);
    ir::Graph graph = graph_of(product, dtype);
    std::mt19937 random(7);
    std::map<std::string, Tensor> values;
    for (const ir::Value* input : graph.inputs()) values.emplace(input->name, random_tensor(input->type, -1, 1, random));
    const Tensor expected = ir::interpret(graph, values).outputs[0];
    const runtime::Program program =
        codegen::generate(graph, passes::plan_memory(graph, {.alignment = 256}), {runtime::TargetKind::cuda, architecture});
    ASSERT_NO_THROW(runtime::validate(program));
    cuda_shim::ProgramRunner runner(program, products);
    for (const auto& [name, value] : values) runner.write(name, value);
    ASSERT_EQ(runner.step(), "");
    EXPECT_LE(largest_difference(runner.read_output(0), expected), tolerance_of(dtype));
  }
}

TEST(ViewedProducts, AsGeneratedKernelsF32) { check_on_cuda(DType::f32, "sm_90", cuda_shim::Products::generated); }
TEST(ViewedProducts, AsGeneratedKernelsF64) { check_on_cuda(DType::f64, "sm_90", cuda_shim::Products::generated); }
TEST(ViewedProducts, OnTensorCoresF16) { check_on_cuda(DType::f16, "sm_75", cuda_shim::Products::generated); }
TEST(ViewedProducts, OnTensorCoresBf16) { check_on_cuda(DType::bf16, "sm_90", cuda_shim::Products::generated); }
TEST(ViewedProducts, AsALibraryReadsThem) { check_on_cuda(DType::f32, "sm_90", cuda_shim::Products::plain_loops); }

/// Whether a target takes a view of f32 as the first operand of a product [2,3,20,16] by [2,3,16,24].
bool is_taken(const runtime::Target& target, const std::string& view, DType dtype = DType::f32) {
  const ir::Graph graph = graph_of({"", "%x: f32[2,3,20,16], %w: f32[2,3,16,24]", "transpose_a=false"}, dtype);
  const ir::Graph seen = graph_of({"", "%x: f32[100000], %w: f32[2,3,16,24]", "operand_views=[" + view + "]"}, dtype);
  return codegen::target_info(target).takes_view(*graph.nodes()[0], *seen.nodes()[0]->attributes.views("operand_views")[0]);
}

TEST(ViewedProducts, AreTakenWhereALibraryIsAsFast) {
  const runtime::Target cpu, cuda{runtime::TargetKind::cuda, "sm_90"};
  const struct {
    const char *what, *view;
    DType dtype;
    bool on_cpu, on_cuda;
  } cases[] = {
      {"dense", "(2,3,20,16):(960,320,16,1)", DType::f32, true, true},
      {"evenly spaced matrices", "(2,3,20,16):(48,16,96,1)", DType::f32, true, true},
      {"heads of a batch", "(2,3,20,16):(1920,16,96,1)", DType::f32, true, false},
      {"one matrix for all", "(2,3,20,16):(0,0,16,1)", DType::f32, true, true},
      {"columns", "(2,3,20,16):(960,320,1,20)", DType::f32, true, true},
      {"rows at 4 bytes", "(2,3,20,16):(1020,340,17,1)", DType::f32, true, false},
      {"from 4 bytes on", "(2,3,20,16):(960,320,16,1)+1", DType::f32, true, false},
      {"from 16 bytes on", "(2,3,20,16):(960,320,16,1)+4", DType::f32, true, true},
      {"of 2 bytes each", "(2,3,20,16):(960,320,16,1)+4", DType::bf16, true, false},
      {"of 2 bytes each, which are widened", "(2,3,20,16):(960,320,16,1)+8", DType::f16, false, true},
      {"of 8 bytes each", "(2,3,20,16):(960,320,16,1)+2", DType::f64, true, true},
      {"no neighbours", "(2,3,20,16):(1920,640,32,2)", DType::f32, false, false},
      {"rows that overlap", "(2,3,20,16):(960,320,8,1)", DType::f32, true, false},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(is_taken(cpu, c.view, c.dtype), c.on_cpu) << c.what << " on the CPU";
    EXPECT_EQ(is_taken(cuda, c.view, c.dtype), c.on_cuda) << c.what << " on CUDA";
  }
}

}  // namespace
}  // namespace gcomp::tests
