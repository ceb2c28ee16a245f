#include "tools/gcomp/emit.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "codegen/describe_steps.h"
#include "codegen/generate.h"
#include "codegen/target.h"
#include "ir/base/nearest.h"
#include "ir/text/print.h"
#include "passes/memory/plan_memory.h"
#include "runtime/backend.h"
#include "runtime/cuda/cubin_resources.h"
#include "runtime/cuda/kernel_set.h"
#include "runtime/device.h"
#include "runtime/files/atomic_file.h"

namespace gcomp::tools {
namespace {

struct EmitForm {
  std::string_view name;
  EmitKind kind;
  std::string_view target;  ///< of whose kind one is needed; "" where any will do
};
constexpr EmitForm kForms[] = {{"ir", EmitKind::ir, ""},
                               {"plan", EmitKind::plan, ""},
                               {"cuda", EmitKind::cuda, "cuda:sm_90"},
                               {"cpp", EmitKind::cpp, "cpu"},
                               {"cubin", EmitKind::cubin, "cuda:sm_90"}};

std::string ended(std::string text) {
  if (text.empty() || text.back() != '\n') text.push_back('\n');
  return text;
}

/// A node's name in a comment, which ends with its line: nothing that a file says becomes code.
std::string in_comment(std::string name) {
  for (char& c : name)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f' || c == '\\') c = '?';
  return name;
}

std::string grid_line(const std::string& origin, const runtime::Grid& grid) {
  return concat("// ", in_comment(origin), ": ", grid.blocks, grid.blocks == 1 ? " block of " : " blocks of ", grid.threads,
                " threads\n");
}

/// A line for the head of a kernel's file: which IR node it runs for, and how often.
std::string describe_use(const runtime::KernelLaunch& launch, const runtime::Backend& backend) {
  if (backend.blocks_of_threads) return grid_line(launch.origin, launch.grid);
  std::int64_t tasks = 0;
  for (const runtime::Segment& segment : launch.segments) tasks += segment.tasks;
  return concat("// ", in_comment(launch.origin), ": ", tasks, tasks == 1 ? " task\n" : " tasks\n");
}

}  // namespace

EmitKind parse_emit(std::string_view text) {
  std::vector<std::string> names;
  for (const EmitForm& form : kForms) {
    if (form.name == text) return form.kind;
    names.emplace_back(form.name);
  }
  throw UserError(concat("--emit ", text, ": wanted ", listing(names), did_you_mean(text, names)), ExitCode::usage);
}

std::string_view needed_target(EmitKind kind) {
  return std::find_if(std::begin(kForms), std::end(kForms), [&](const EmitForm& form) { return form.kind == kind; })->target;
}

EmittedFile emit_ir(const driver::LoweredGraph& lowered) {
  return {lowered.graph.name() + ".gir", ended(ir::print(lowered.graph))};
}

namespace {

/// Of all kernels, as their machine code says.
std::vector<codegen::KernelResources> resources_of(const runtime::Program& program, const runtime::DeviceOptions& options) {
  const auto nvrtc = runtime::cuda::Nvrtc::find(options.libraries);
  std::vector<codegen::KernelResources> all;
  for (const runtime::cuda::Cubin& cubin : runtime::cuda::compile_program(nvrtc, program, runtime::cuda::cubin_options(options))) {
    const runtime::cuda::CubinResources resources = runtime::cuda::resources_of_cubin(cubin.image);
    all.push_back({resources.registers, resources.shared_bytes});
  }
  return all;
}

}  // namespace

EmittedFile emit_plan(const driver::LoweredGraph& lowered, const runtime::Target& target, const PlanOptions& options) {
  std::string text = passes::describe(lowered.graph, lowered.plan, {.alignment = codegen::target_info(target).buffer_alignment});
  if (const codegen::DeviceRates* rates = codegen::target_of(target).rates) {
    const codegen::CountedProgram counted = codegen::generate_counted(lowered.graph, lowered.plan, target, options.limits);
    std::vector<codegen::KernelResources> resources;
    if (options.compiler) resources = resources_of(counted.program, *options.compiler);
    text += codegen::describe_steps(counted.program, counted.costs, *rates, {.resources = resources, .tf32 = options.tf32});
  }
  return {lowered.graph.name() + ".plan", ended(std::move(text))};
}

std::vector<EmittedFile> emit_kernels(const runtime::Program& program) {
  const codegen::Target& target = codegen::target_of(program.target);
  const runtime::Backend& backend = runtime::backend_of(program.target);
  const std::string prelude(target.prelude_file);
  std::vector<std::string> uses(program.kernels.size());
  const auto add_launch = [&](const runtime::KernelLaunch& launch) {
    uses[static_cast<std::size_t>(launch.kernel)].append(describe_use(launch, backend));
    if (launch.tf32)
      uses[static_cast<std::size_t>(launch.tf32->kernel)].append(grid_line(launch.origin + " in TF32", launch.tf32->grid));
  };
  const auto add_product = [&](const runtime::GeneratedProduct& product, const std::string& origin) {
    for (const runtime::ProductLaunch& launch : product.launches)
      uses[static_cast<std::size_t>(launch.kernel)].append(grid_line(origin, launch.grid));
  };
  for (const runtime::Step& step : program.steps)
    runtime::visit_step(
        step, [&](const runtime::KernelLaunch& launch) { add_launch(launch); },
        [&](const runtime::MatmulCall& call) {
          add_product(call.generated, call.origin);
          if (call.epilogue) add_launch(call.epilogue->after);
        },
        [&](const runtime::ConvolutionCall& call) {
          add_product(call.generated, call.origin);
          add_product(call.generated_tf32, call.origin);
          add_product(call.packing, call.origin);
        },
        [&](const runtime::AttentionCall& call) {
          for (const runtime::KernelLaunch& launch : call.generated) add_launch(launch);
        },
        [](const runtime::CollectiveCall&) {});
  std::vector<EmittedFile> files = {{prelude, ended(program.prelude)}};
  for (std::size_t i = 0; i < program.kernels.size(); ++i)
    files.emplace_back(concat(program.kernels[i].name, backend.kernel_suffix),
                       ended(concat(uses[i], "#include \"", prelude, "\"\n\n", program.kernels[i].text)));
  return files;
}

std::vector<EmittedFile> emit_cubins(const runtime::Program& program, const runtime::DeviceOptions& options,
                                     const Console& console) {
  const auto nvrtc = runtime::cuda::Nvrtc::find(options.libraries);
  const std::vector<runtime::cuda::Cubin> cubins =
      runtime::cuda::compile_program(nvrtc, program, runtime::cuda::cubin_options(options));
  console.say(concat("compiled by NVRTC ", nvrtc.version()));
  std::vector<EmittedFile> files;
  for (std::size_t i = 0; i < cubins.size(); ++i)
    files.emplace_back(program.kernels[i].name + ".cubin",
                       std::string(reinterpret_cast<const char*>(cubins[i].image.data()), cubins[i].image.size()));
  return files;
}

void write_emitted(const std::vector<EmittedFile>& files, const std::filesystem::path& folder, const Console& console) {
  nlohmann::json written = nlohmann::json::array();
  if (folder.empty()) {
    const bool several = files.size() > 1;
    for (const auto& [name, text] : files) console.result(several ? concat("// ---- ", name, "\n", text) : text);
    for (const auto& [name, text] : files) written.push_back({{"name", name}, {"text", text}});
    return console.result_json({{"files", written}});
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  check_user(!error, "cannot make the folder '", folder.string(), "': ", error.message());
  for (const auto& [name, text] : files) {
    runtime::write_file(folder / name, std::as_bytes(std::span(text)), runtime::Durability::buffered);
    written.push_back({{"name", (folder / name).string()}, {"bytes", text.size()}});
  }
  console.result(concat("wrote ", files.size(), files.size() == 1 ? " file" : " files", " to '", folder.string(), "'"));
  console.result_json({{"files", written}});
}

}  // namespace gcomp::tools
