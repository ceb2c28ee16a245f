#include "runtime/cuda/products.h"

#include <algorithm>

#include "ir/base/integers.h"
#include "runtime/cuda/cudnn_choices.h"

namespace gcomp::runtime::cuda {
namespace {

/// On an H200 products of 32768 x 3072 x 768 took 1208 us with the gradient of GELU and 728 with GELU, 756 and 701 plain with a
/// kernel after it; those with a bias gradient 1185 and 1163 (bench/results/h200-2026-11-28).
bool is_slow_in_tf32(const LibraryEpilogue& epilogue, DType dtype, MatmulPrecision precision) {
  return dtype == DType::f32 && precision == MatmulPrecision::tf32 && epilogue.kind != EpilogueKind::bias;
}

std::unique_ptr<CublasLtMatmul> plan_library(const Session& session, const Program& program, const MatmulCall& call,
                                             std::span<const std::byte> kernel_binary, const DeviceOptions& options,
                                             MatmulTuning& tuning) {
  if (!session.cublaslt) return nullptr;
  const int offers = options.tune == Tuning::all ? kAllOffers : kFavourites;
  constexpr CUdeviceptr kSomewhere = CUdeviceptr{1} << 40;  // pointers of an epilogue are not null
  const LibraryEpilogue* epilogue = call.epilogue && call.epilogue->library ? &*call.epilogue->library : nullptr;
  const auto somewhere = [&](const std::optional<int>& buffer) { return buffer ? kSomewhere + position_of(program, *buffer) : 0; };
  MatmulBuffers buffers = {position_of(program, call.a.buffer), position_of(program, call.b.buffer),
                           position_of(program, call.c.buffer)};
  if (epilogue) {
    buffers.bias = somewhere(epilogue->bias);
    buffers.aux = somewhere(epilogue->aux);
  }
  const auto plan = [&](const LibraryEpilogue* with) {
    return CublasLtMatmul::plan(session.cublaslt, call, buffers, options.precision, with, offers);
  };
  MatmulWays ways;
  if (epilogue && (!is_slow_in_tf32(*epilogue, call.dtype, options.precision) || tuning.compares())) ways.fused = plan(epilogue);
  if (!ways.fused || tuning.compares()) ways.plain = plan(nullptr);
  return tuning.choose(std::move(ways), {program, call, kernel_binary});
}

const GeneratedProduct& generated_for(const ConvolutionCall& call, MatmulPrecision precision) {
  const bool rounds = precision == MatmulPrecision::tf32 && !call.generated_tf32.launches.empty();
  return rounds ? call.generated_tf32 : call.generated;
}

}  // namespace

void time_products(const Session& session, const Program& program, std::span<const std::byte> kernel_binary,
                   const DeviceOptions& options, MatmulTuning& tuning) {
  if (!tuning.times()) return;
  for (const Step& step : program.steps)
    if (const auto* call = std::get_if<MatmulCall>(&step)) plan_library(session, program, *call, kernel_binary, options, tuning);
  tuning.save();
}

ProductBuffers product_buffers(const MatmulCall& call) { return {call.a.buffer, call.b.buffer, call.c.buffer}; }

ProductBuffers product_buffers(const ConvolutionCall& call) {
  switch (call.kind) {
    case ConvolutionKind::forward: return {call.input, call.weight, call.output};
    case ConvolutionKind::input_gradient: return {call.weight, call.output, call.input};
    case ConvolutionKind::weight_gradient: return {call.input, call.output, call.weight};
  }
  throw InternalError("product_buffers: a kind outside its enumeration");
}

std::int64_t packed_bytes(const ConvolutionCall& call) {
  constexpr std::int64_t kAlignment = 256;
  return round_up(call.packing.workspace_bytes, kAlignment);
}

ProductPlan::ProductPlan(const Session& session, const Program& program, std::span<const std::byte> kernel_binary,
                         const DeviceOptions& options, MatmulTuning& tuning)
    : library_(program.steps.size()),
      convolutions_(program.steps.size()),
      attentions_(program.steps.size()),
      follows_library_(program.steps.size()),
      generated_(program.steps.size()),
      after_(program.steps.size()),
      tf32_(options.precision == MatmulPrecision::tf32),
      passes_over_(!tuning.compares()),
      log_(options.log) {
  CudnnChoices cudnn(session, program, options);
  attentions_ = cudnn.attentions();
  std::set<int> left;  // rows by a library
  const auto plan_matmul = [&](std::size_t i, const MatmulCall& call) {
    library_[i] = plan_library(session, program, call, kernel_binary, options, tuning);
    const bool on_the_way = call.epilogue && (library_[i] ? library_[i]->has_epilogue() : call.epilogue->generated);
    if (call.epilogue && !on_the_way) after_[i] = &call.epilogue->after;
  };
  const auto require_a_way = [&](std::size_t i, const GeneratedProduct& generated, const std::string& origin) {
    if (!library_[i] && generated.launches.empty())
      throw DeviceError(concat(origin, ": the program carries no kernels for this product, and cuBLASLt ",
                               session.cublaslt ? "does not compute it" : "is not used"));
    if (!library_[i]) generated_[i] = &generated;
    workspace_bytes_ = std::max(workspace_bytes_, library_[i] ? library_[i]->workspace_bytes() : generated.workspace_bytes);
  };
  for (std::size_t i = 0; i < program.steps.size(); ++i)
    visit_step(
        program.steps[i], [](const KernelLaunch&) {},
        [&](const MatmulCall& call) {
          plan_matmul(i, call);
          require_a_way(i, call.generated, call.origin);
        },
        [&](const ConvolutionCall& call) {
          convolutions_[i] = cudnn.convolution(call);
          if (!convolutions_[i]) return require_a_way(i, generated_for(call, options.precision), call.origin);
          workspace_bytes_ = std::max(workspace_bytes_, packed_bytes(call) + convolutions_[i]->workspace_bytes());
        },
        [&](const AttentionCall& call) {
          if (!attentions_[i]) follows_library_[i] = left.contains(call.top);
          else if (call.kind == AttentionKind::forward) left.insert(call.top);
          if (attentions_[i]) workspace_bytes_ = std::max(workspace_bytes_, attentions_[i]->workspace_bytes());
        },
        [](const CollectiveCall&) {});
  tuning.save();
  cudnn.save();
}

void ProductPlan::queue(std::size_t step, const MatmulCall& call, const MatmulBuffers& buffers, CUdeviceptr workspace,
                        CUstream stream) {
  CublasLtMatmul& matmul = *library_[step];
  const cublasStatus_t first = matmul.try_queue(call, buffers, workspace, stream);
  for (cublasStatus_t status = first; status != CUBLAS_STATUS_SUCCESS;
       status = matmul.try_queue(call, buffers, workspace, stream)) {
    if (!passes_over_ || !matmul.pass_over(workspace_bytes_))
      throw DeviceError(concat(call.origin, ": cublasLtMatmul of ", call.m, " x ", call.n, " x ", call.k, " gave status ",
                               static_cast<int>(first)));
    if (log_)
      log_(concat(call.origin, ": an algorithm that cuBLASLt offers fails and is passed over: cublasLtMatmul gave status ",
                  static_cast<int>(status)));
  }
}

std::vector<GridKernel> planned_launches(const Program& program, std::size_t step, const ProductPlan& products) {
  std::vector<GridKernel> launches;
  const auto add = [&](const KernelLaunch& launch) { launches.push_back(products.kernel(launch)); };
  const auto add_product = [&](const GeneratedProduct& product) {
    for (const ProductLaunch& launch : product.launches) launches.push_back({launch.kernel, launch.grid});
  };
  if (const GeneratedProduct* generated = products.generated(step)) add_product(*generated);
  if (products.convolution(step)) add_product(std::get<ConvolutionCall>(program.steps[step]).packing);
  if (const KernelLaunch* after = products.after(step)) add(*after);
  if (const auto* launch = std::get_if<KernelLaunch>(&program.steps[step])) add(*launch);
  if (const auto* call = std::get_if<AttentionCall>(&program.steps[step]); call && !products.attention(step))
    for (const KernelLaunch& launch : call->generated) add(launch);
  return launches;
}

std::set<int> used_kernels(const Program& program, const ProductPlan& products) {
  std::set<int> used;
  for (std::size_t i = 0; i < program.steps.size(); ++i)
    for (const GridKernel& launch : planned_launches(program, i, products)) used.insert(launch.kernel);
  return used;
}

}  // namespace gcomp::runtime::cuda
