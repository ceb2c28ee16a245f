// Every kernel that CUDA code generation emits compiles with NVRTC to a cubin, without registers spilled to memory. Skipped where
// there is no NVRTC.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

#include "codegen/cuda/attention/attention.h"
#include "codegen/cuda/product_parts.h"
#include "codegen/cuda/products/products.h"
#include "codegen/cuda/target.h"
#include "ir/ops/table.h"
#include "ir/text/parse.h"
#include "runtime/cuda/nvrtc.h"
#include "tests/codegen/attention_graphs.h"
#include "tests/codegen/cubin_report.h"
#include "tests/codegen/cuda_graphs.h"
#include "tests/codegen/cuda_shim/kernel_runner.h"

namespace gcomp::tests {
namespace {

using runtime::ConvolutionCall;
using runtime::ConvolutionKind;
using runtime::Kernel;
using runtime::MatmulCall;
using runtime::MatrixView;
using runtime::Target;
using runtime::TargetKind;
namespace cuda = runtime::cuda;

constexpr std::size_t kSmallTogether = 32;      // small kernels in one source: NVRTC takes 60 ms for a source of any size
constexpr std::size_t kRepresentative = 12;     // of the patterns, every so many for the architectures in between
constexpr int kBetween[] = {80, 86, 100, 120};  // a quarter each, as NVRTC takes long

struct Sources {
  std::vector<std::string> texts;
  int kernels = 0;
};

/// The kernels of graphs as NVRTC sees them, `together` in one source, every `stride`-th of them.
Sources sources_of(const std::vector<LabelledGraph>& graphs, std::size_t together = 1, std::size_t stride = 1) {
  cuda_shim::KernelRunner runner;
  for (const LabelledGraph& g : graphs) runner.add_kernels(g.graph);
  Sources sources;
  for (std::size_t i = 0; i < runner.kernels().size(); i += stride) {
    if (static_cast<std::size_t>(sources.kernels) % together == 0) sources.texts.push_back(runner.prelude());
    sources.texts.back() += "\n" + runner.kernels()[i].text;
    ++sources.kernels;
  }
  return sources;
}

/// Those of the patterns whose text has a mark.
Sources patterns_with(std::string_view mark) {
  cuda_shim::KernelRunner runner;
  for (const LabelledGraph& g : pattern_graphs()) runner.add_kernels(g.graph);
  Sources sources;
  for (const Kernel& kernel : runner.kernels()) {
    if (kernel.text.find(mark) == std::string::npos) continue;
    sources.texts.push_back(runner.prelude() + "\n" + kernel.text);
    ++sources.kernels;
  }
  return sources;
}

Sources sources_of(const codegen::KernelTable& table) {
  Sources sources;
  for (const Kernel& kernel : table.kernels()) sources.texts.push_back(table.prelude() + "\n" + kernel.text);
  sources.kernels = static_cast<int>(table.kernels().size());
  return sources;
}

/// Matrix products in large and small tiles; in an order, 1 says that the first operand's memory is transposed, 2 the second's.
Sources product_sources(int architecture, std::initializer_list<DType> dtypes, std::initializer_list<int> orders = {0, 1, 2, 3}) {
  codegen::KernelTable table(codegen::cuda::kTarget);
  for (DType dtype : dtypes)
    for (int order : orders)
      for (std::int64_t size : {64, 4096}) {
        const auto view = [&](bool transposed) { return MatrixView{0, 0, {}, transposed ? 1 : size, transposed ? size : 1}; };
        MatmulCall call{.dtype = dtype,
                        .batch = {},
                        .m = size,
                        .n = size,
                        .k = size == 64 ? 8192 : size,
                        .a = view(order % 2),
                        .b = view(order / 2),
                        .c = view(false),
                        .origin = ""};
        call.a.row_stride = order % 2 ? 1 : call.k;
        call.b.column_stride = order / 2 ? call.k : 1;
        codegen::cuda::generate_product(call, architecture, table);
      }
  return sources_of(table);
}

/// GELU with a bias, its operand kept: where tiles are stored, large and small, and after the sum of splits.
Sources epilogue_sources(int architecture, std::initializer_list<DType> dtypes) {
  codegen::KernelTable table(codegen::cuda::kTarget);
  const Target target{TargetKind::cuda, concat("sm_", architecture)};
  for (DType dtype : dtypes)
    for (auto [m, n, k] : {std::array<std::int64_t, 3>{4096, 4096, 4096}, {8192, 8, 64}, {64, 64, 8192}}) {
      std::string text = R"(graph @g(%a: T[M,K], %b: T[K,N], %v: T[N]) -> (%y, %z) {
        %y, %z = product %a, %b, %v : T[M,N], T[M,N] {
          axes i:M, j:N, k:K
          t0[i,j]: C = reduce_sum[k] mul<C>(%a[i,k], %b[k,j])
          t1[i,j]: T = add<C>(t0, %v[j])
          t2[i,j]: T = (t1 * (0.5 * (tanh((0.7978846 * (t1 + (0.044715 * (t1 * (t1 * t1)))))) + 1)))
          %y[i,j] = t2
          %z[i,j] = t1
        } })";
      const std::pair<char, std::string> words[] = {{'T', std::string(name_of(dtype))},
                                                    {'C', dtype == DType::f64 ? "f64" : "f32"},
                                                    {'M', std::to_string(m)},
                                                    {'N', std::to_string(n)},
                                                    {'K', std::to_string(k)}};
      for (const auto& [letter, word] : words)
        for (std::size_t at; (at = text.find(letter)) != text.npos;) text.replace(at, 1, word);
      const ir::Graph graph = ir::parse(text);
      const ir::Node& node = *graph.nodes()[0];
      const codegen::cuda::ProductParts parts = codegen::cuda::take_apart(node, target);
      EXPECT_TRUE(codegen::cuda::fits_product_kernel(parts));
      std::vector<TensorType> operands;
      for (const ir::Value* operand : parts.operands) operands.push_back(operand->type);
      const codegen::cuda::ProductEpilogue epilogue{codegen::cuda::epilogue_text(parts.whole, operands, ir::types_of(node.results)),
                                                    {}};
      codegen::cuda::generate_product(codegen::matmul_call(node, parts.sums, [](const ir::Value*) { return 0; }), architecture,
                                      table, &epilogue);
    }
  return sources_of(table);
}

struct ConvolvedImages {
  std::int64_t batch = 0, channels = 0, groups = 0;
};
/// Large and small tiles, and the direct form.
constexpr ConvolvedImages kOfEachForm[] = {{1, 16, 1}, {64, 256, 1}, {1, 32, 32}};

using GenerateConvolution = runtime::GeneratedProduct (*)(const ConvolutionCall&, int, codegen::KernelTable&);

/// Convolutions and their gradients.
Sources convolution_sources(int architecture, std::initializer_list<DType> dtypes, std::initializer_list<bool> layouts,
                            std::span<const ConvolvedImages> images = kOfEachForm,
                            GenerateConvolution generate = codegen::cuda::generate_product) {
  codegen::KernelTable table(codegen::cuda::kTarget);
  for (DType dtype : dtypes)
    for (bool channels_last : layouts)
      for (const auto& [batch, channels, groups] : images)
        for (auto kind : {ConvolutionKind::forward, ConvolutionKind::input_gradient, ConvolutionKind::weight_gradient})
          generate(ConvolutionCall{.kind = kind,
                                   .dtype = dtype,
                                   .channels_last = channels_last,
                                   .batch = batch,
                                   .input_channels = channels,
                                   .output_channels = channels,
                                   .groups = groups,
                                   .input_spatial = {28, 28},
                                   .output_spatial = {28, 28},
                                   .kernel = {3, 3},
                                   .strides = {1, 1},
                                   .pads_begin = {1, 1},
                                   .pads_end = {1, 1},
                                   .dilations = {1, 1},
                                   .origin = ""},
                   architecture, table);
  return sources_of(table);
}

enum class Kernels : std::uint8_t { exact, tf32 };

/// Attention and its gradients with heads of each width that has tiles of its own, causal or under a mask, and through views: of
/// one width of several, every other, as only constants of the text are others then.
Sources attention_sources(int architecture, std::initializer_list<DType> dtypes,
                          std::initializer_list<std::int64_t> widths = {16, 32, 64, 80, 128, 256},
                          Kernels kernels = Kernels::exact) {
  codegen::KernelTable table(codegen::cuda::kTarget);
  bool packed_first = false;
  for (DType dtype : dtypes) {
    bool through_views = packed_first = !packed_first;  // the other one for the next dtype's same width
    for (std::int64_t width : widths) {
      const bool masked = width % 32 != 0 || width == 128;
      const AttentionCase dense{.label = "a",
                                .batch = {2, 12},
                                .queries = 1000,
                                .keys = 1000,
                                .width = width,
                                .value_width = width,
                                .mask = masked ? Shape{2, 1, 1, 1000} : Shape(),
                                .boolean = width == 80,
                                .attributes = {{"causal", !masked}}};
      AttentionCase packed = dense;
      packed.label = "b";
      packed.layout = AttentionLayout::packed;
      ir::Graph graph =
          attention_graph(dtype, widths.size() == 1 ? std::vector{dense, packed} : std::vector{through_views ? packed : dense});
      through_views = !through_views;
      lower_unexpanded(graph);
      for (const auto& node : graph.nodes())
        if (node->op->kind == ir::Kind::composite)
          for (const auto& launch : codegen::cuda::attention_launches(*node, architecture)) {
            if (kernels == Kernels::exact) table.add_text(launch.kernel.text);
            else if (launch.tf32) table.add_text(launch.tf32->text);
          }
    }
  }
  return sources_of(table);
}

/// Gradients over few keys, for each number of warps, with heads of `width`, causal or not; the forward passes are not among them.
Sources short_gradient_sources(int architecture, DType dtype, std::initializer_list<std::int64_t> widths = {16, 48, 64}) {
  codegen::KernelTable table(codegen::cuda::kTarget);
  for (const std::int64_t width : widths)
    for (std::int64_t warps = 1; warps <= 8; ++warps) {
      const std::int64_t keys = 32 * warps - (warps == 7 ? 27 : warps % 4);  // ViT's 197, and ends within and at a warp's
      ir::Graph graph = attention_graph(dtype, {{.label = "a",
                                                 .batch = {2, 12},
                                                 .queries = warps == 1 ? 1000 : keys,
                                                 .keys = keys,
                                                 .width = width,
                                                 .value_width = width,
                                                 .attributes = {{"causal", warps % 2 == 0}},
                                                 .layout = AttentionLayout::cross}});
      lower_unexpanded(graph);
      for (const auto& node : graph.nodes())
        if (node->op == &ir::ops::kAttentionGradient)
          for (const auto& launch : codegen::cuda::attention_launches(*node, architecture)) table.add_text(launch.kernel.text);
    }
  return sources_of(table);
}

/// Of what is generated for one of kBetween, every fourth kernel: another one for each of them.
Sources turn_of(std::size_t which, const Sources& all) {
  Sources turn;
  for (std::size_t i = which; i < all.texts.size(); i += std::size(kBetween)) turn.texts.push_back(all.texts[i]);
  turn.kernels = static_cast<int>(turn.texts.size());
  return turn;
}

class CudaCubins : public ::testing::Test {
 protected:
  void SetUp() override {
    const cuda::LibrarySearch search =
        cuda::search_by_variables([](const char* name) { return static_cast<const char*>(std::getenv(name)); });
    const cuda::LibraryResult found = cuda::find_library(cuda::LibraryKind::nvrtc, search);
    if (!found.library) GTEST_SKIP() << found.description(cuda::LibraryKind::nvrtc);
    nvrtc_ = cuda::Nvrtc::find(search);
  }

  void compile(const Sources& sources, const std::string& architecture, int most_registers = 255) {
    cuda::CubinOptions options;
    options.compiler_options = {"--ptxas-options=-v"};
    const std::vector<cuda::Cubin> cubins = cuda::compile_cubins(*nvrtc_, sources.texts, architecture, options);
    int kernels = 0;
    for (std::size_t i = 0; i < cubins.size(); ++i) {
      const CubinReport report = cubin_report(cubins[i].log);
      kernels += report.kernels;
      const std::string what = architecture + ": " + cubins[i].log + sources.texts[i].substr(sources.texts[i].find("extern \"C\""));
      EXPECT_GT(cubins[i].image.size(), 100u);
      EXPECT_EQ(report.spilled_bytes, 0) << what;
      EXPECT_LE(report.registers, most_registers) << what;
      EXPECT_EQ(cubins[i].log.find("warning"), std::string::npos) << what;
    }
    EXPECT_EQ(kernels, sources.kernels);
    std::printf("%s: %d kernels\n", architecture.c_str(), kernels);
  }

  void compile_in_turns(const std::function<Sources(int architecture)>& generate, int most_registers = 255) {
    for (std::size_t which = 0; which < std::size(kBetween); ++which) {
      const Sources turn = turn_of(which, generate(kBetween[which]));
      EXPECT_GT(turn.kernels, 0) << "sm_" << kBetween[which];
      compile(turn, concat("sm_", kBetween[which]), most_registers);
    }
  }

 private:
  std::optional<cuda::Nvrtc> nvrtc_;
};

TEST_F(CudaCubins, EveryOpForTheOldestArchitecture) { compile(sources_of(op_graphs(), kSmallTogether), "sm_75"); }

TEST_F(CudaCubins, PatternsForTheOldestAndHopper) {
  const Sources sources = sources_of(pattern_graphs(), kSmallTogether);
  for (const char* architecture : {"sm_75", "sm_90"}) compile(sources, architecture);
}

// Two blocks of a column reduction run on a processor at once, however many totals and reads it has.
TEST_F(CudaCubins, ColumnsTakeAtMost128Registers) { compile(patterns_with("const unsigned y = "), "sm_90", 128); }

// A block of 256 threads with the sums of a strip's columns, and two of 512 with a row each in shared memory.
TEST_F(CudaCubins, StripsAndHeldRowsFitTheRegisters) {
  compile(patterns_with("for (unsigned above = 0;"), "sm_90", 224);
  compile(patterns_with("gc_held + 0"), "sm_90", 64);
}

TEST_F(CudaCubins, SomeForEveryArchitecture) {
  const Sources some = sources_of(pattern_graphs(), kSmallTogether, kRepresentative);
  for (const char* architecture : {"sm_80", "sm_86", "sm_100", "sm_120"}) compile(some, architecture);
}

TEST_F(CudaCubins, ProductsForTheOldestAndHopper) {
  compile(product_sources(75, {DType::f32, DType::f16, DType::bf16}), "sm_75");
  compile(product_sources(90, {DType::f32, DType::f64, DType::bf16}), "sm_90");
}

TEST_F(CudaCubins, ConvolutionsForTheOldestAndHopper) {
  compile(convolution_sources(75, {DType::f16}, {true}), "sm_75");
  compile(convolution_sources(75, {DType::f32}, {false}), "sm_75");
  compile(convolution_sources(90, {DType::bf16}, {false, true}), "sm_90");
  compile(convolution_sources(90, {DType::f32, DType::f64}, {true}), "sm_90");
}

// Two blocks of 256 threads share the 65536 registers of a multiprocessor.
TEST_F(CudaCubins, ConvolutionsInTf32) {
  const auto sources = [](int architecture) {
    return convolution_sources(architecture, {DType::f32}, {true}, std::span(kOfEachForm, 2), codegen::cuda::generate_tf32_product);
  };
  compile(sources(90), "sm_90", 128);
  compile_in_turns(sources, 128);
}

TEST_F(CudaCubins, PackedWeights) {
  const auto generate = [](const ConvolutionCall& call, int, codegen::KernelTable& kernels) {
    return codegen::cuda::generate_packing(call, kernels);
  };
  for (int architecture : {75, 80, 86, 90, 100, 120})
    compile(convolution_sources(architecture, {DType::f32, DType::f64, DType::f16, DType::bf16}, {true}, std::span(kOfEachForm, 1),
                                generate),
            concat("sm_", architecture));
}

TEST_F(CudaCubins, SomeConvolutionsForEveryArchitecture) {
  compile_in_turns(
      [](int architecture) { return convolution_sources(architecture, {DType::bf16}, {true}, std::span(kOfEachForm, 2)); });
}

TEST_F(CudaCubins, SomeProductsForEveryArchitecture) {
  compile_in_turns([](int architecture) { return product_sources(architecture, {DType::bf16}, {0, 3}); });
}

TEST_F(CudaCubins, ProductsWithEpiloguesForEveryArchitecture) {
  compile(epilogue_sources(75, {DType::f32, DType::f16}), "sm_75");
  compile(epilogue_sources(90, {DType::f32, DType::f64, DType::bf16}), "sm_90");
  compile_in_turns([](int architecture) { return epilogue_sources(architecture, {DType::bf16}); });
}

TEST_F(CudaCubins, AttentionForTheOldestAndHopper) {
  compile(attention_sources(75, {DType::f16}, {32, 80, 128}), "sm_75");
  compile(attention_sources(75, {DType::f32, DType::bf16}, {80, 128}), "sm_75");
  compile(attention_sources(90, {DType::bf16}), "sm_90");
  compile(attention_sources(90, {DType::f32, DType::f64}, {32, 128}), "sm_90");
}

// Two blocks of 128 threads share the registers of a multiprocessor, and more where shared memory allows it.
TEST_F(CudaCubins, AttentionInTf32) {
  const auto sources = [](std::initializer_list<std::int64_t> widths) {
    return [widths](int architecture) { return attention_sources(architecture, {DType::f32}, widths, Kernels::tf32); };
  };
  compile(sources({32, 64, 80, 128})(90), "sm_90");
  compile_in_turns(sources({64}));
}

// Eight warps share the registers of a multiprocessor.
TEST_F(CudaCubins, GradientsOverFewKeys) {
  const Sources all = short_gradient_sources(90, DType::bf16);
  EXPECT_EQ(all.kernels, 24) << "one for each width and number of warps";
  compile(all, "sm_90");
  const Sources in_f16 = turn_of(0, short_gradient_sources(80, DType::f16, {64}));
  compile(in_f16, "sm_80");
  compile_in_turns([](int architecture) { return short_gradient_sources(architecture, DType::bf16, {64}); });
}

TEST_F(CudaCubins, SomeAttentionForEveryArchitecture) {
  // In f32 the recorded models have it.
  compile_in_turns([](int architecture) { return attention_sources(architecture, {DType::bf16}, {128}); });
}

}  // namespace
}  // namespace gcomp::tests
