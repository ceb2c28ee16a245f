#include "tests/commands/examples.h"

#include <stdio.h>
#include <sys/wait.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <stdexcept>

#include "onnx/onnx.pb.h"
#include "runtime/files/npz.h"
#include "tests/commands/digit_files.h"
#include "tests/drive/command.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kRows = 128, kFeatures = 4, kHidden = 4, kOutputs = 2;

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// Words as a shell splits them, without quotes.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream in(line);
  for (std::string word; in >> word;) {
    std::erase(word, '\'');
    words.push_back(word);
  }
  return words;
}

/// "gcomp" or "gcomp-opt" where the line runs it; variables may stand before it.
std::string program_of(const std::string& line) {
  for (const std::string& word : words_of(line)) {
    if (word.find('=') != word.npos) continue;
    const std::string name = fs::path(word).filename();
    return name == "gcomp" || name == "gcomp-opt" ? name : "";
  }
  return "";
}

/// Without the spaces before it and the comment behind it.
std::string bare(std::string line) {
  line = std::regex_replace(line, std::regex("\\s+# .*$"), "");
  line.erase(0, line.find_first_not_of(' '));
  return line;
}

bool names_model(const std::string& line) {
  const std::vector<std::string> words = words_of(line);
  return words.size() > 2 && (words[2].find("MODEL") != std::string::npos || fs::path(words[2]).extension() == ".onnx");
}

std::string value_of(const std::vector<std::string>& words, const std::string& option) {
  const auto at = std::find(words.begin(), words.end(), option);
  return at == words.end() || at + 1 == words.end() ? "" : *(at + 1);
}

void add_matrix(onnx::GraphProto& graph, const std::string& name, const std::vector<std::int64_t>& shape) {
  onnx::TensorProto& tensor = *graph.add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  std::int64_t count = 1;
  for (const std::int64_t size : shape) tensor.add_dims(size), count *= size;
  for (std::int64_t i = 0; i < count; ++i) tensor.add_float_data(0.1f * static_cast<float>((7 * i) % 11) - 0.4f);
}

void add_node(onnx::GraphProto& graph, const std::string& op, const std::vector<std::string>& inputs, const std::string& output) {
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type(op);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
}

void set_type(onnx::ValueInfoProto& value, const std::string& name, std::int64_t columns) {
  value.set_name(name);
  auto& type = *value.mutable_type()->mutable_tensor_type();
  type.set_elem_type(onnx::TensorProto::FLOAT);
  type.mutable_shape()->add_dim()->set_dim_param("batch");
  type.mutable_shape()->add_dim()->set_dim_value(columns);
}

onnx::ModelProto empty_model() {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  model.mutable_graph()->set_name("example");
  return model;
}

/// Printable characters and the end of a line.
std::vector<std::string> letters() {
  std::vector<std::string> tokens{"\n"};
  for (char c = ' '; c <= '~'; ++c) tokens.emplace_back(1, c);
  return tokens;
}

/// Logits for the token after each, from that one alone.
onnx::ModelProto language_model() {
  constexpr std::int64_t kContext = 16;
  onnx::ModelProto model = empty_model();
  onnx::GraphProto& graph = *model.mutable_graph();
  set_type(*graph.add_input(), "ids", kContext);
  graph.mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::INT64);
  const auto tokens = static_cast<std::int64_t>(letters().size());
  set_type(*graph.add_output(), "logits", kContext);
  graph.mutable_output(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(tokens);
  add_matrix(graph, "table", {tokens, kHidden});
  add_matrix(graph, "head", {kHidden, tokens});
  add_node(graph, "Gather", {"table", "ids"}, "hidden");
  add_node(graph, "MatMul", {"hidden", "head"}, "logits");
  return model;
}

/// Ten classes from the mean colours of an image.
onnx::ModelProto photo_model() {
  constexpr std::int64_t kSide = 224, kClasses = 10;
  onnx::ModelProto model = empty_model();
  onnx::GraphProto& graph = *model.mutable_graph();
  set_type(*graph.add_input(), "image", 3);
  for (int i = 0; i < 2; ++i)
    graph.mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(kSide);
  set_type(*graph.add_output(), "scores", kClasses);
  add_matrix(graph, "fc.weight", {3, kClasses});
  add_node(graph, "GlobalAveragePool", {"image"}, "pooled");
  add_node(graph, "Flatten", {"pooled"}, "colours");
  add_node(graph, "MatMul", {"colours", "fc.weight"}, "scores");
  return model;
}

void write_proto(const fs::path& path, const onnx::ModelProto& model) {
  std::ofstream out(path, std::ios::binary);
  model.SerializeToOstream(&out);
}

}  // namespace

std::vector<std::string> examples_in_text(std::string_view text) {
  std::vector<std::string> examples;
  for (const std::string& line : lines_of(text))
    if (line.starts_with("  ") && !program_of(line).empty() && words_of(line).size() > 1) examples.push_back(bare(line));
  return examples;
}

std::vector<std::string> examples_in_document(std::string_view markdown) {
  std::vector<std::string> examples;
  bool fenced = false;
  const std::regex span("`([^`]+)`");
  for (const std::string& line : lines_of(std::regex_replace(std::string(markdown), std::regex("\\\\\n +"), ""))) {
    if (line.starts_with("```")) {
      fenced = !fenced;
    } else if (fenced || line.starts_with("    ")) {
      if (!program_of(line).empty() && words_of(line).size() > 1) examples.push_back(bare(line));
    } else {
      for (std::sregex_iterator it(line.begin(), line.end(), span), end; it != end; ++it)
        if (program_of((*it)[1]) == "gcomp" && names_model((*it)[1])) examples.push_back((*it)[1]);
    }
  }
  return examples;
}

std::string without_placeholders(std::string line) {
  const std::vector<std::string> words = words_of(line);
  const bool compiles = std::find(words.begin(), words.end(), "compile") != words.end();
  const std::string rest = compiles ? "--loss cross_entropy --dim batch=8"
                                    : "--data train.npz --loss cross_entropy --batch 64 --steps 2 --out trained.onnx";
  if (const std::size_t at = line.find("..."); at != line.npos) line.replace(at, 3, rest);
  return std::regex_replace(line, std::regex("gcomp COMMAND"), "gcomp train");
}

bool needs_gpu(std::string_view line) { return line.find("--device cuda") != line.npos || line.find("--emit cubin") != line.npos; }

ExampleFolder::ExampleFolder() {
  fs::create_directory_symlink(fs::path(GCOMP_BINARY).parent_path().parent_path(), folder_ / "build");
  fs::create_directory_symlink(fs::path(GCOMP_SOURCE_DIR) / "examples", folder_ / "examples");
  put(folder_ / "model.gir", "graph @affine(%x: f32[3,4], %w: f32[4,2]) -> (%y) {\n  %p = matmul %x, %w\n  %y = relu %p\n}\n");
}

void ExampleFolder::provide(const std::string& line) {
  std::istringstream segments(line);
  for (std::string segment; std::getline(segments, segment, '|');)
    if (program_of(segment) == "gcomp") {
      const std::vector<std::string> words = words_of(segment);
      provide_data(words);
      if (std::ranges::count(words, "data") > 0) continue;  // gcomp data: there is no model
      if (std::find(words.begin(), words.end(), "convert") != words.end()) provide_conversion(words);
      else provide_segment(words);
      provide_keys(words);
      provide_beside(words);
    }
}

/// Data that are no .npz, by the names that documents give them, and a model that fits photos.
void ExampleFolder::provide_data(const std::vector<std::string>& words) {
  const auto names = [&](const std::string& name) {
    return std::ranges::count(words, name) + std::ranges::count(words, name + "/") > 0;
  };
  if (names("digits.npz")) fs::copy_file(fs::path(GCOMP_SOURCE_DIR) / "examples/digits/test.npz", folder_ / "digits.npz");
  if (std::ranges::any_of(words, [](const std::string& word) { return word.starts_with("iris.csv"); }))
    put(folder_ / "iris.csv", "sepal,petal,species\n5.1,1.4,setosa\n6.3,6.0,virginica\n");
  if (names("FOLDER")) {
    write_data(folder_ / "arrays.npz", value_of(words, "--loss"));
    static_cast<void>(run_gcomp({"data", "convert", folder_ / "arrays.npz", "-o", folder_ / "FOLDER"}));
  }
  if (!names("photos")) return;
  write_png_folder(some_digits(100), folder_ / "photos");
  const auto model = std::ranges::find_if(words, [](const std::string& word) { return word.ends_with(".onnx"); });
  if (model == words.end() || fs::exists(folder_ / *model)) return;
  const bool large = std::ranges::any_of(words, [](const std::string& word) { return word.find("224") != word.npos; });
  if (large) write_proto(folder_ / *model, photo_model());
  else fs::copy_file(fs::path(GCOMP_SOURCE_DIR) / "examples/digits/digits.onnx", folder_ / *model);
}

/// What is converted, and the model beside it, all of one training.
void ExampleFolder::provide_conversion(const std::vector<std::string>& words) {
  const auto must = [](const CommandResult& result) {
    if (result.exit_code != 0) throw std::runtime_error(result.errors);
  };
  const auto command = std::find(words.begin(), words.end(), "convert");
  if (words.end() - command < 3) return;
  write_model(folder_ / "base.onnx", words);
  write_data(folder_ / "base.npz", "");
  must(run_gcomp({"train", folder_ / "base.onnx", "--data", folder_ / "base.npz", "--loss", "cross_entropy", "--batch", "8",
                  "--steps", "2", "--ema", "0.9", "--out", folder_ / "base.gcx"}));
  fs::path input = folder_ / *(command + 1);
  fs::create_directories(input.parent_path());
  if (input.filename() == "checkpoints") {
    fs::create_directories(input);
    input /= "step-00000500";
  }
  if (input.extension() == ".gcx") fs::copy_file(folder_ / "base.gcx", input);
  else must(run_gcomp({"convert", folder_ / "base.gcx", input}));
  if (const fs::path model = value_of(words, "--model"); !model.empty())
    fs::copy_file(folder_ / ("base" + model.extension().string()), folder_ / model);
}

/// Keys by the names of their files, and the model signed where a signature is asked for.
void ExampleFolder::provide_keys(const std::vector<std::string>& words) {
  const auto must = [](const CommandResult& result) {
    if (result.exit_code != 0) throw std::runtime_error(result.errors);
  };
  for (const std::string& word : words) {
    if (!word.ends_with(".pem")) continue;
    const std::string key = word.substr(0, word.find(".pub.pem") != word.npos ? word.find(".pub.pem") : word.find(".pem"));
    if (!fs::exists(folder_ / (key + ".pem"))) must(run_gcomp({"sign", "--new-key", folder_ / key}));
    if (value_of(words, "--require-signature") != word) continue;
    for (const std::string& model : words)
      if (model.ends_with(".gcx")) must(run_gcomp({"sign", folder_ / model, "--key", folder_ / (key + ".pem")}));
  }
}

/// A vocabulary, and an adapter of the model.
void ExampleFolder::provide_beside(const std::vector<std::string>& words) {
  if (const std::string vocabulary = value_of(words, "--vocab"); !vocabulary.empty())
    put(folder_ / vocabulary, nlohmann::json{{"kind", "characters"}, {"tokens", letters()}}.dump());
  const std::string adapter = value_of(words, "--adapter");
  if (adapter.empty()) return;
  const fs::path folder = (folder_ / adapter).parent_path();
  fs::create_directories(folder);
  write_data(folder_ / "any.npz", "");
  const CommandResult made =
      run_gcomp({"train", folder_ / words[2], "--data", folder_ / "any.npz", "--loss", "cross_entropy", "--batch", "8", "--steps",
                 "1", "--lora", "*", "--out-adapter", folder_ / adapter, "--out", folder_ / "any.onnx"});
  if (made.exit_code != 0) throw std::runtime_error(made.errors);
}

void ExampleFolder::provide_segment(const std::vector<std::string>& words) {
  const auto command =
      std::find_if(words.begin(), words.end(), [](const auto& word) { return fs::path(word).filename() == "gcomp"; });
  if (words.end() - command < 3 || (command + 2)->starts_with("-")) return;
  const std::string model = *(command + 2), loss = value_of(words, "--loss");
  std::vector<fs::path> data;
  for (const char* option : {"--data", "--eval-data", "--inputs"})
    if (const std::string name = value_of(words, option); !name.empty()) data.push_back(folder_ / name);
  for (const fs::path& file : data)
    if (!fs::exists(file)) write_data(file, loss);
  if (fs::exists(folder_ / model)) return;
  // Data that the repository has belong to the model beside them.
  std::error_code none;
  for (const fs::path& file : data)
    for (const auto& entry : fs::directory_iterator(file.parent_path(), none))
      if (file.parent_path() != folder_.path() && entry.path().extension() == ".onnx") {
        fs::copy_file(entry.path(), folder_ / model);
        return;
      }
  if (fs::path(model).extension() != ".gcx") {
    write_model(folder_ / model, words);
    const std::string weights = value_of(words, "--init");
    if (!weights.empty() && run_gcomp({"convert", folder_ / model, folder_ / weights}).exit_code != 0)
      throw std::runtime_error("cannot write " + weights);
    return;
  }
  write_model(folder_ / "compiled.onnx", words);
  std::vector<std::string> compile{"compile", folder_ / "compiled.onnx", "--batch", std::to_string(kRows), "-o", folder_ / model};
  if (*(command + 1) == "train" || *(command + 1) == "eval") compile.insert(compile.end(), {"--train", "--loss", "cross_entropy"});
  const CommandResult made = run_gcomp(compile);
  if (made.exit_code != 0) throw std::runtime_error(made.errors);
}

ExampleFolder::Result ExampleFolder::run(const std::string& line) {
  std::string script = "set -o pipefail\ncd '" + folder_.path().string() + "'\nexport PATH=\"$PWD/build/bin:$PATH\"\n";
  // What the cache's own commands remove is not other tests' kernels.
  if (line.find("gcomp cache") != line.npos) script += "export XDG_CACHE_HOME=\"$PWD/cache\"\n";
  put(folder_ / "example.sh", script + line + "\n");
  FILE* const pipe = popen(("bash '" + (folder_ / "example.sh").string() + "' 2>&1").c_str(), "r");
  if (!pipe) throw std::runtime_error("cannot start bash");
  Result result;
  char buffer[4096];
  for (std::size_t got = 0; (got = fread(buffer, 1, sizeof buffer, pipe)) > 0;) result.output.append(buffer, got);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

/// A hidden layer and a head, the former with a name that --freeze and --thaw match; outputs between 0 and 1 where the loss wants
/// that.
void ExampleFolder::write_model(const fs::path& path, const std::vector<std::string>& words) {
  if (std::ranges::count(words, "generate") > 0) return write_proto(path, language_model());
  std::string encoder = "encoder.*";
  for (const char* option : {"--freeze", "--thaw", "--lora"})
    if (const std::string glob = value_of(words, option); !glob.empty()) encoder = glob;
  encoder = std::regex_replace(encoder, std::regex("\\*"), "weight");
  onnx::ModelProto model = empty_model();
  onnx::GraphProto& graph = *model.mutable_graph();
  set_type(*graph.add_input(), "x", kFeatures);
  const std::string named = value_of(words, "--output"), output = named.empty() ? "y" : named;
  set_type(*graph.add_output(), output, kOutputs);
  add_matrix(graph, encoder, {kFeatures, kHidden});
  add_matrix(graph, "encoder.bias", {kHidden});
  add_matrix(graph, "head.weight", {kHidden, kOutputs});
  add_node(graph, "Gemm", {"x", encoder, "encoder.bias"}, "hidden");
  add_node(graph, "Relu", {"hidden"}, "active");
  add_node(graph, "MatMul", {"active", "head.weight"}, "scores");
  add_node(graph, value_of(words, "--loss") == "bce" ? "Sigmoid" : "Identity", {"scores"}, output);
  write_proto(path, model);
}

/// `label` is the class for cross_entropy, else a number in [0, 1) for each output.
void ExampleFolder::write_data(const fs::path& path, const std::string& loss) {
  const bool classes = loss.empty() || loss.starts_with("cross_entropy");
  Tensor x(DType::f32, {kRows, kFeatures});
  Tensor label(classes ? DType::i64 : DType::f32, classes ? Shape{kRows} : Shape{kRows, kOutputs});
  for (std::int64_t i = 0; i < x.elements(); ++i) x.set(i, 0.25 * static_cast<double>(i % 7) - 0.5);
  for (std::int64_t i = 0; i < label.elements(); ++i)
    label.set(i, classes ? static_cast<double>(i % kOutputs) : 0.2 * static_cast<double>(i % 5));
  const std::vector<runtime::NamedTensor> arrays{{"x", x}, {"label", label}};
  runtime::write_npz(path, arrays);
}

}  // namespace gcomp::test
