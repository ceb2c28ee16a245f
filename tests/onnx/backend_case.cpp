#include "tests/onnx/backend_case.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "frontend/onnx/import.h"
#include "frontend/onnx/source.h"
#include "frontend/onnx/tensor_proto.h"
#include "ir/base/error.h"
#include "ir/expand.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"

namespace gcomp::tests {
namespace {

namespace fs = std::filesystem;
using frontend::ImportedModel;
using frontend::ImportOptions;
using frontend::OnnxFile;

/// Terms that the interpreter may evaluate for one case; larger ones are listed, not run.
constexpr double kBudget = 3e7;

struct Tolerance {
  double relative = 1e-3, absolute = 1e-7;
};

std::string read_bytes(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// "rtol" and "atol" of a data.json, read without a JSON library: the file is one flat object.
Tolerance tolerance_of(const fs::path& folder) {
  Tolerance tolerance;
  const std::string text = read_bytes(folder / "data.json");
  auto field = [&](const std::string& name, double otherwise) {
    const auto at = text.find("\"" + name + "\"");
    return at == std::string::npos ? otherwise : std::strtod(text.c_str() + text.find(':', at) + 1, nullptr);
  };
  return {field("rtol", tolerance.relative), field("atol", tolerance.absolute)};
}

Tensor read_pb(const fs::path& path) {
  ::onnx::TensorProto proto;
  check_user(proto.ParseFromString(read_bytes(path)), path.string(), ": no TensorProto");
  return frontend::read_tensor(proto, "");
}

double work_of(const ir::Graph& graph) {
  double work = 0;
  for (const auto& node : graph.nodes()) {
    double own = 0;
    for (const ir::Value* result : node->results) own += static_cast<double>(result->type.elements());
    if (node->op->kind == ir::Kind::reduce) own = static_cast<double>(node->operands[0]->type.elements());
    if (node->op->kind == ir::Kind::contract) {
      const Shape& w = node->operands[1]->type.shape;
      own *= node->op == &ir::ops::kMatmul ? static_cast<double>(node->operands[0]->type.shape.back())
                                           : static_cast<double>(element_count(w)) / static_cast<double>(w[0]);
    }
    work += own;
  }
  return work;
}

std::string difference(const Tensor& got, const Tensor& wanted, const Tolerance& tolerance) {
  if (got.type() != wanted.type()) return concat("is ", to_string(got.type()), ", wanted ", to_string(wanted.type()));
  for (std::int64_t i = 0; i < got.elements(); ++i) {
    const double a = got.at(i), b = wanted.at(i);
    const bool same = a == b || (a != a && b != b) || std::fabs(a - b) <= tolerance.absolute + tolerance.relative * std::fabs(b);
    if (!same) return concat("element ", i, " is ", a, ", wanted ", b);
  }
  return "";
}

/// The suite draws with NumPy's Mersenne Twister, gcomp with Philox: such a case is compared by property. What both draws kept
/// must agree; what either dropped is 0.
bool is_random(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return name.find("training_dropout") != std::string::npos || name.find("bernoulli") != std::string::npos;
}
std::string kept_difference(Tensor got, const Tensor& wanted, const Tolerance& tolerance) {
  if (got.type() == wanted.type())
    for (std::int64_t i = 0; i < got.elements(); ++i)
      if (got.at(i) == 0 || wanted.at(i) == 0) got.set(i, wanted.at(i));
  return difference(got, wanted, tolerance);
}

/// Which inputs become constants: none; then all that are integers or small; then all.
enum class Fixed { none, settings, all };

ImportOptions options_for(const std::map<std::string, Tensor>& inputs, Fixed fixed) {
  ImportOptions options;
  options.as_written = true;
  for (const auto& [name, tensor] : inputs) {
    const bool setting = !is_float(tensor.dtype()) || tensor.shape().size() <= 1;
    if (fixed == Fixed::all || (fixed == Fixed::settings && setting)) options.constants.emplace(name, tensor);
    else options.shapes.emplace(name, tensor.shape());
  }
  return options;
}

CaseResult run_data_set(const OnnxFile& file, const fs::path& data, const Tolerance& tolerance) {
  std::map<std::string, Tensor> inputs;
  for (std::size_t i = 0; i < file.inputs.size(); ++i) {
    const fs::path path = data / concat("input_", i, ".pb");
    if (!fs::exists(path)) return {CaseStatus::fail, "no file " + path.filename().string()};
    inputs.emplace(file.inputs[i].name, read_pb(path));
  }
  std::optional<ImportedModel> model;
  for (Fixed fixed : {Fixed::none, Fixed::settings, Fixed::all}) {
    try {
      model.emplace(import_onnx(file, options_for(inputs, fixed)));
      break;
    } catch (const UserError& error) {
      if (error.code() != ExitCode::unsupported || fixed == Fixed::all) throw;
    }
  }
  ir::expand(model->graph);
  if (const double work = work_of(model->graph); work > kBudget) return {CaseStatus::too_large, concat(work, " terms")};
  for (const auto& [name, tensor] : model->weights.all()) inputs.insert_or_assign(name, tensor);
  const std::vector<Tensor> outputs = ir::interpret(model->graph, inputs).outputs;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const fs::path path = data / concat("output_", i, ".pb");
    if (!fs::exists(path)) continue;
    const Tensor wanted = read_pb(path);
    const std::string text =
        is_random(data.parent_path()) ? kept_difference(outputs[i], wanted, tolerance) : difference(outputs[i], wanted, tolerance);
    if (!text.empty()) return {CaseStatus::fail, concat("output '", model->outputs[i], "' ", text)};
  }
  return {};
}

}  // namespace

CaseResult run_case(const fs::path& folder) {
  try {
    const OnnxFile file = frontend::open_onnx((folder / "model.onnx").string());
    const Tolerance tolerance = tolerance_of(folder);
    for (int i = 0; fs::exists(folder / concat("test_data_set_", i)); ++i) {
      CaseResult result = run_data_set(file, folder / concat("test_data_set_", i), tolerance);
      if (result.status != CaseStatus::pass) return result;
    }
    return {};
  } catch (const UserError& error) {
    return {error.code() == ExitCode::unsupported ? CaseStatus::unsupported : CaseStatus::fail, error.what()};
  } catch (const std::exception& error) { return {CaseStatus::fail, error.what()}; }
}

std::optional<fs::path> shared_folder() {
  const char* variable = std::getenv("GCOMP_SHARED");
  for (const fs::path& path :
       {fs::path(variable ? variable : ""), fs::path(GCOMP_SHARED_DIR), fs::path(GCOMP_SOURCE_DIR) / ".." / "shared"})
    if (!path.empty() && fs::exists(path / "onnx-backend")) return path;
  return std::nullopt;
}

}  // namespace gcomp::tests
