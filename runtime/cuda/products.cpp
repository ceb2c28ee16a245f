#include "runtime/cuda/products.h"

#include <algorithm>

#include "runtime/cuda/matmul_tuning.h"

namespace gcomp::runtime::cuda {
namespace {

/// An algorithm is chosen by alignment alone, and blocks of memory are aligned to more than any offset in them.
CUdeviceptr position_of(const Program& program, int buffer) {
  const Buffer& b = program.buffers[static_cast<std::size_t>(buffer)];
  return b.space == Space::state ? 0 : static_cast<CUdeviceptr>(b.offset);
}

std::unique_ptr<CublasLtMatmul> plan_library(const Session& session, const Program& program, const MatmulCall& call,
                                             const DeviceOptions& options) {
  if (!session.cublaslt) return nullptr;
  constexpr CUdeviceptr kSomewhere = CUdeviceptr{1} << 40;  // pointers of an epilogue are not null
  const LibraryEpilogue* epilogue = call.epilogue && call.epilogue->library ? &*call.epilogue->library : nullptr;
  const auto somewhere = [&](const std::optional<int>& buffer) { return buffer ? kSomewhere + position_of(program, *buffer) : 0; };
  MatmulBuffers buffers = {position_of(program, call.a.buffer), position_of(program, call.b.buffer),
                           position_of(program, call.c.buffer)};
  if (epilogue) {
    buffers.bias = somewhere(epilogue->bias);
    buffers.aux = somewhere(epilogue->aux);
    if (auto joined = CublasLtMatmul::plan(session.cublaslt, call, buffers, options.precision, epilogue)) return joined;
  }
  return CublasLtMatmul::plan(session.cublaslt, call, buffers, options.precision);
}

std::string origin_of(const Step& step) {
  return std::visit([](const auto& call) { return call.origin; }, step);
}

}  // namespace

const GeneratedProduct* generated_product(const Step& step) {
  if (const auto* matmul = std::get_if<MatmulCall>(&step)) return &matmul->generated;
  if (const auto* convolution = std::get_if<ConvolutionCall>(&step)) return &convolution->generated;
  return nullptr;
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

ProductPlan::ProductPlan(const Session& session, const Program& program, const DeviceOptions& options)
    : library_(program.steps.size()), after_(program.steps.size()) {
  MatmulTuning tuning(session, options);
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    const GeneratedProduct* generated = generated_product(step);
    if (!generated) continue;
    if (const auto* matmul = std::get_if<MatmulCall>(&step)) {
      library_[i] = plan_library(session, program, *matmul, options);
      if (library_[i]) tuning.tune(*library_[i], *matmul);
      if (const auto& epilogue = matmul->epilogue; epilogue && !(library_[i] ? library_[i]->has_epilogue() : epilogue->generated))
        after_[i] = &epilogue->after;
    }
    if (!library_[i] && generated->launches.empty())
      throw DeviceError(concat(origin_of(step), ": the program carries no kernels for this product, and cuBLASLt ",
                               session.cublaslt ? "does not compute it" : "is not used"));
    workspace_bytes_ = std::max(workspace_bytes_, library_[i] ? library_[i]->workspace_bytes() : generated->workspace_bytes);
  }
  tuning.save();
}

std::set<int> used_kernels(const Program& program, const ProductPlan& products) {
  std::set<int> used;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    if (const auto* launch = std::get_if<KernelLaunch>(&program.steps[i])) used.insert(launch->kernel);
    const GeneratedProduct* generated = generated_product(program.steps[i]);
    if (products.after(i)) used.insert(products.after(i)->kernel);
    if (!generated || products.library(i)) continue;
    for (const ProductLaunch& launch : generated->launches) used.insert(launch.kernel);
  }
  return used;
}

}  // namespace gcomp::runtime::cuda
