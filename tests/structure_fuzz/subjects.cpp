#include "tests/structure_fuzz/subjects.h"

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "codegen/target.h"
#include "gcomp/driver/compiled_model.h"
#include "gcomp/driver/saved_model.h"
#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "passes/memory/plan_memory.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/disk_cache.h"
#include "runtime/files/npz.h"
#include "runtime/files/sha256.h"
#include "tests/structure_fuzz/bombs.h"

namespace gcomp::tests {
namespace fs = std::filesystem;
namespace {

using Made = std::pair<std::string, std::string>;

constexpr std::uintmax_t kLargestSeed = 1 << 20;

std::string text_of(const fs::path& file) {
  const std::vector<std::byte> bytes = runtime::read_file(file, kLargestSeed);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void put(const fs::path& file, std::string_view text) { runtime::write_file(file, std::as_bytes(std::span(text))); }

std::vector<fs::path> models_in(const std::vector<fs::path>& folders) {
  std::vector<fs::path> models;
  for (const fs::path& folder : folders)
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.path().extension() == ".onnx" && entry.file_size() <= kLargestSeed) models.push_back(entry.path());
  std::sort(models.begin(), models.end());
  return models;
}

// ---- models ----

/// Two for every dimension that the file leaves open.
driver::ShapeRequest small_shapes(const Model& model) {
  driver::ShapeRequest request;
  for (const frontend::ValueInfo& input : model.inputs()) {
    Shape shape;
    bool unnamed = false;
    for (const frontend::Dimension& dimension : input.dimensions) {
      shape.push_back(dimension.size >= 0 ? dimension.size : 2);
      if (dimension.size < 0 && !dimension.symbol.empty()) request.dims.emplace(dimension.symbol, 2);
      unnamed = unnamed || (dimension.size < 0 && dimension.symbol.empty());
    }
    if (unnamed) request.shapes.emplace(input.name, std::move(shape));
  }
  return request;
}

/// Import, and where it succeeds the way to a program: forward or training step, for the CPU or a GPU.
void compile(Random& random, const fs::path& file) {
  const Model model = Model::load(file);
  driver::GraphOptions options;
  options.shapes = small_shapes(model);
  if (pick(random, 2) != 0) options.target = {.kind = runtime::TargetKind::cuda, .architecture = "sm_90"};
  constexpr std::array kLosses{"mse", "cross_entropy", "bce", "l1"};
  driver::ModelGraph made;
  if (pick(random, 2) != 0) {
    made = driver::inference_graph(model, options);
  } else {
    options.precision = pick(random, 4) != 0 ? DType::f32 : DType::bf16;
    made = driver::training_graph(model, options, passes::parse_loss(kLosses[pick(random, kLosses.size())]), {});
  }
  driver::compile_graph(std::move(made.graph), options.target);
}

Subject edited_models(std::vector<fs::path> models) {
  return {"onnx",
          [models = std::move(models)](Random& random, const fs::path& folder) {
            const fs::path& seed = models[pick(random, models.size())];
            put(folder / "case.onnx", edit_message(random, text_of(seed), &onnx_model_schema()));
            return Made("case.onnx", "an edited " + seed.filename().string());
          },
          compile};
}

Subject bombs() {
  return {"bombs",
          [](Random& random, const fs::path& folder) {
            Made made{"case.onnx", ""};
            put(folder / made.first, random_bomb(random, made.second));
            return made;
          },
          compile};
}

// ---- IR text ----

Subject edited_ir(const std::vector<fs::path>& models) {
  auto texts = std::make_shared<std::vector<std::string>>();
  for (const fs::path& file : models) {
    try {
      const Model model = Model::load(file);
      driver::GraphOptions options;
      options.shapes = small_shapes(model);
      ir::Graph graph = driver::inference_graph(model, options).graph;
      for (int lowered = 0; lowered < 2; ++lowered) {
        if (std::string text = ir::print(graph); text.size() < 60'000) texts->push_back(std::move(text));
        graph = driver::lower_graph(std::move(graph), {}).graph;
      }
    } catch (const Error&) {}  // a trap
  }
  return {"gir",
          [texts](Random& random, const fs::path& folder) {
            put(folder / "case.gir", edit_text(random, (*texts)[pick(random, texts->size())]));
            return Made("case.gir", "edited IR text");
          },
          [](Random& random, const fs::path& file) {
            runtime::Target target;
            if (pick(random, 2) != 0) target = {.kind = runtime::TargetKind::cuda, .architecture = "sm_90"};
            ir::Graph graph = ir::parse(text_of(file));
            const auto& nodes = graph.nodes();
            const bool lowered =
                std::any_of(nodes.begin(), nodes.end(), [](const auto& node) { return node->op->kind == ir::Kind::kernel; });
            if (!lowered) return void(driver::compile_graph(std::move(graph), target));
            if (std::any_of(nodes.begin(), nodes.end(), [](const auto& node) { return node->op->kind == ir::Kind::composite; }))
              throw UserError("kernels beside composites, which nothing lowers");
            driver::LoweredGraph as_it_is{std::move(graph), {}};
            as_it_is.plan = passes::plan_memory(as_it_is.graph, {.alignment = codegen::target_info(target).buffer_alignment});
            driver::generate_program(as_it_is, target);
          }};
}

// ---- archives ----

struct Entry {
  std::string name, bytes;
};

std::vector<Entry> entries_of(const fs::path& file) {
  const runtime::ZipReader archive(file);
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < archive.entries().size(); ++i) {
    const std::vector<std::byte> bytes = archive.read(i);
    entries.push_back({archive.entries()[i].name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
  }
  return entries;
}

void write_entries(const fs::path& file, const std::vector<Entry>& entries) {
  runtime::ZipWriter archive(file);
  for (const Entry& entry : entries) archive.add(entry.name, std::as_bytes(std::span(entry.bytes)), runtime::Compression::stored);
  archive.commit();
}

Subject edited_arrays(const fs::path& scratch) {
  const fs::path seed = scratch / "seed.npz";
  const std::vector<runtime::NamedTensor> arrays{{"x", Tensor(DType::f32, {3, 4})},
                                                 {"label", Tensor(DType::i64, {3})},
                                                 {"mask", Tensor(DType::boolean, {3, 1})},
                                                 {"scale", Tensor(DType::f64, Shape{})}};
  runtime::write_npz(seed, arrays);
  return {"npz",
          [seed](Random& random, const fs::path& folder) {
            if (pick(random, 2) != 0) {
              put(folder / "case.npz", edit_bytes(random, text_of(seed)));
              return Made("case.npz", "an archive with other bytes");
            }
            std::vector<Entry> entries = entries_of(seed);
            Entry& entry = entries[pick(random, entries.size())];
            entry.bytes = pick(random, 2) != 0 ? edit_text(random, entry.bytes) : edit_bytes(random, entry.bytes);
            write_entries(folder / "case.npz", entries);
            return Made("case.npz", "an array with another header");
          },
          [](Random&, const fs::path& file) {
            const runtime::NpzFile arrays(file);
            for (const std::string& name : arrays.names()) {
              try {
                arrays.load(name);
              } catch (const UserError&) {}  // the others are read all the same
            }
          }};
}

/// The manifest says of each other entry what it now holds, so that edits get past it.
void mend_manifest(std::vector<Entry>& entries) {
  nlohmann::json manifest = nlohmann::json::parse(entries[0].bytes);
  for (std::size_t i = 1; i < entries.size(); ++i) {
    const std::string digest = runtime::sha256(std::as_bytes(std::span(entries[i].bytes)));
    manifest["entries"][entries[i].name] = {{"bytes", entries[i].bytes.size()}, {"sha256", digest}};
  }
  entries[0].bytes = manifest.dump();
}

Subject edited_artifacts(const std::vector<fs::path>& models, const fs::path& scratch) {
  const fs::path seed = scratch / "seed.gcx";
  const auto small = std::find_if(models.begin(), models.end(), [](const fs::path& path) { return path.stem() == "digits"; });
  check_user(small != models.end(), "the corpus lacks digits.onnx");
  driver::ArtifactOptions options;
  options.graph.shapes.batch = 2;
  options.loss = "cross_entropy";
  options.device_options.use_cache = false;
  runtime::write_artifact(seed, driver::compile_model(Model::load(*small), options).artifact);
  auto entries = std::make_shared<const std::vector<Entry>>(entries_of(seed));
  return {"gcx",
          [entries](Random& random, const fs::path& folder) {
            std::vector<Entry> edited = *entries;
            const std::size_t at = pick(random, edited.size());
            std::string& bytes = edited[at].bytes;
            if (edited[at].name.ends_with(".pb")) bytes = edit_message(random, bytes, nullptr);
            else bytes = pick(random, 2) != 0 && bytes.size() < 60'000 ? edit_text(random, bytes) : edit_bytes(random, bytes);
            if (at != 0) mend_manifest(edited);
            write_entries(folder / "case.gcx", edited);
            return Made("case.gcx", concat("an edited ", edited[at].name));
          },
          [](Random&, const fs::path& file) { driver::saved_model(runtime::read_artifact(file), file); }};
}

Subject edited_cache_entries() {
  return {"cache",
          [](Random& random, const fs::path& folder) {
            const runtime::DiskCache cache(folder / "cache");
            check_user(cache.store("a key\nof two lines", std::as_bytes(std::span("an object"))).empty(),
                       "the entry is not stored");
            const fs::path entry = cache.path_of("a key\nof two lines");
            put(entry, pick(random, 2) != 0 ? edit_text(random, text_of(entry)) : edit_bytes(random, text_of(entry)));
            return Made("cache", "an edited entry");
          },
          [](Random&, const fs::path& file) {
            const runtime::DiskCache cache(file);
            std::string damage;
            const auto found = cache.find("a key\nof two lines", damage);
            check_internal(!found || found->size() == sizeof("an object"), "an edited entry of the cache is believed");
            cache.entries();
          }};
}

}  // namespace

std::vector<Subject> subjects(const std::vector<fs::path>& corpus, const fs::path& scratch) {
  const std::vector<fs::path> models = models_in(corpus);
  check_user(!models.empty(), "no models of at most ", kLargestSeed, " bytes in the folders given");
  return {edited_models(models), bombs(), edited_ir(models), edited_arrays(scratch), edited_artifacts(models, scratch),
          edited_cache_entries()};
}

}  // namespace gcomp::tests
