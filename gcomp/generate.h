// Tokens from a model that maps ids [batch, length] to logits [batch, length, vocabulary], one after another:
//
//   gcomp::Generator generator(gcomp::Model::load("gpt.onnx"), {});
//   generator.generate(ids, {.tokens = 100}, [](std::int64_t id) { ...; return true; });
//
// Each token is taken from the logits at the last one before it. Models see a fixed number of positions, the context: shorter texts
// are filled up on the right, which changes nothing for a model that looks back alone, and of longer ones the last are shown.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/artifact_trust.h"
#include "gcomp/compile_options.h"
#include "gcomp/device_options.h"
#include "gcomp/function.h"
#include "gcomp/model.h"
#include "gcomp/optional.h"
#include "gcomp/owned.h"
#include "gcomp/path.h"

namespace gcomp {

/// What the logits go through before one of them is drawn, in this order, as Hugging Face's logits warpers have them.
struct Sampling {
  double temperature = 1;  ///< logits are divided by it; above 0
  std::int64_t top_k = 0;  ///< only the k largest, and what equals the last of them; 0 for all
  double top_p = 1;        ///< only the fewest likeliest that together have this probability; above 0 and at most 1
  std::uint64_t seed = 0;  ///< draw i is Philox4x32-10 at counter {i, i >> 32, 0, 0} with the seed for its key
};
/// Throws UserError (exit 2) for what is out of range.
void check(const Sampling& sampling);

/// The probability of each token once the logits went through all of it; in f64.
std::vector<double> sampled_probabilities(std::span<const double> logits, const Sampling& sampling);
/// Token number `draw` of a text, drawn from those by the inverse of their cumulative sum. Throws UserError (exit 8) where a logit
/// is NaN or none is finite.
std::int64_t sample_token(std::span<const double> logits, const Sampling& sampling, std::uint64_t draw);
/// The likeliest token, the first of equals. Throws as sample_token() does.
std::int64_t greedy_token(std::span<const double> logits);

struct GeneratorOptions {
  std::string output = {};   ///< which output has the logits; "" for the first of floats with three dimensions
  std::int64_t context = 0;  ///< positions, where the model leaves them open; 0 for as many as the first text needs
  GraphOptions graph = {};   ///< `dims` and `shapes` bind the context too
  Path adapter = {};         ///< as PredictOptions::adapter
  DeviceRequest device = DeviceRequest::automatic;
  DeviceOptions device_options = {};
  CompileHooks hooks = {};
};

struct GenerateOptions {
  std::int64_t tokens = 100;         ///< how many new ones
  Optional<Sampling> sampling = {};  ///< without it, always the likeliest token
};

/// Belongs to one thread at a time.
class Generator {
 public:
  /// Throws UserError where the model's inputs are not one of integers [batch, length]. Compiles in prepare() or generate().
  Generator(Model model, const GeneratorOptions& options);
  /// From a .gcx file; needs no compiler. A batch of more than one row computes as often what is looked at once.
  static Generator load(const Path& path, const std::string& output = {}, const DeviceOptions& options = {},
                        DeviceRequest device = DeviceRequest::automatic, const ArtifactTrust& trust = {});
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;
  ~Generator();

  /// Compiles for so many tokens that the model sees: a text but for its last. Throws UserError where the model has no logits
  /// [batch, length, vocabulary].
  void prepare(std::int64_t tokens);
  /// Both once prepared.
  std::int64_t context() const;
  std::int64_t vocabulary() const;

  /// The logits at the last of some ids. Throws UserError for no ids, one that is no token, and, where they are fewer than the
  /// context, for a model whose logits depend on what comes behind them.
  std::vector<double> logits(std::span<const std::int64_t> ids);
  /// The new tokens. `on_token` is told each as it comes, and ends the text by false. The same options give the same tokens.
  std::vector<std::int64_t> generate(std::span<const std::int64_t> prompt, const GenerateOptions& options,
                                     const Function<bool(std::int64_t)>& on_token = {});
  /// "cpu, 2 threads, ...", and why this device.
  std::string device() const;

  struct Impl;  // gcomp/generate.cpp
  explicit Generator(Owned<Impl> impl);

 private:
  Owned<Impl> impl_;
};

/// What tokens stand for. A JSON file: {"kind": "characters", "tokens": ["\n", " ", "a", ...]}, where token i is element i, one
/// character each, or {"kind": "bytes"}, where token i is byte i; with "tokens": [10, 32, ...] it is the byte at i.
class Vocabulary {
 public:
  /// Throws UserError naming the file and what is wrong with it.
  static Vocabulary load(const Path& path);
  static Vocabulary parse(std::string_view json);

  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }
  /// Throws UserError for a character or byte that is no token, with its place.
  std::vector<std::int64_t> encode(std::string_view text) const;
  /// Throws UserError for an id that is no token.
  const std::string& text(std::int64_t id) const;

 private:
  std::vector<std::string> tokens_;  // UTF-8, or one byte each
};

}  // namespace gcomp
