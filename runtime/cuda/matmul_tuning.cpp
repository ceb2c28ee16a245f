#include "runtime/cuda/matmul_tuning.h"

#include <algorithm>

#include "gcomp/version.h"
#include "runtime/cuda/cudnn_choices.h"
#include "runtime/cuda/kernel_set.h"
#include "runtime/files/hexadecimal.h"

namespace gcomp::runtime::cuda {
namespace {

/// In place of an algorithm of the product with its epilogue: the plain one, and the kernel after it, is faster.
constexpr char kPlain[] = "plain";

/// Where bits stay as they are, fewer operations than this are not worth the time of timing them: a launch takes as long.
constexpr double kLeastOperations = 1 << 27;
/// And what is this much faster, or less, is as fast.
constexpr float kAsFast = 0.99F;

double operations_of(const MatmulCall& call) {
  double operations = 2;
  for (const std::int64_t extent : call.batch) operations *= static_cast<double>(extent);
  for (const std::int64_t extent : {call.m, call.n, call.k}) operations *= static_cast<double>(extent);
  return operations;
}

std::filesystem::path cache_directory(const DeviceOptions& options) {
  if (options.tune == Tuning::off || !options.use_cache) return {};
  return cache_directory_of(options);
}

/// Words as numbers, their first digit first.
std::string hexadecimal(const cublasLtMatmulAlgo_t& algorithm) {
  std::vector<std::byte> bytes;
  for (const std::uint64_t word : algorithm.data)
    for (int shift = 56; shift >= 0; shift -= 8) bytes.push_back(static_cast<std::byte>(word >> shift));
  return to_hexadecimal(bytes);
}

const LibraryEpilogue* epilogue_of(const CublasLtMatmul& matmul, const MatmulCall& call) {
  return matmul.has_epilogue() ? &*call.epilogue->library : nullptr;
}

}  // namespace

std::string shape_key(const MatmulCall& call, const LibraryEpilogue* epilogue) {
  std::string text = concat(name_of(call.dtype), " ", call.m, "x", call.n, "x", call.k);
  for (const std::int64_t extent : call.batch) text += concat(" of ", extent);
  for (const MatrixView* view : {&call.a, &call.b, &call.c}) {
    text += concat(" ", view->row_stride, ":", view->column_stride);
    for (const std::int64_t stride : view->batch_strides) text += concat(":", stride);
    text += concat("+", view->offset % 256);
  }
  if (epilogue)
    text += concat(" epilogue ", static_cast<int>(epilogue->kind), epilogue->bias ? " bias" : "", epilogue->aux ? " aux" : "");
  return text;
}

/// The memory that both ways of a product are timed in, made where it comes to that.
class MatmulTuning::Trial {
 public:
  Trial(const Session& session, const MatmulWays& ways, const ProgramProduct& product, TrialNumbers& numbers)
      : session_(session), product_(product), numbers_(numbers) {
    for (const CublasLtMatmul* matmul : {ways.fused.get(), ways.plain.get()}) {
      if (!matmul) continue;
      for (const MatmulAlgorithm& candidate : matmul->candidates())
        workspace_bytes_ = std::max(workspace_bytes_, static_cast<std::int64_t>(candidate.workspace_bytes));
    }
  }

  const ProgramProduct& product() const { return product_; }
  const MatmulCall& call() const { return product_.call; }
  /// Null where memory is too short.
  const MatmulTiming* timing() {
    if (!tried_) timing_ = MatmulTiming::make(session_, product_.program, product_.call, workspace_bytes_, numbers_);
    tried_ = true;
    return timing_.get();
  }

 private:
  const Session& session_;
  const ProgramProduct& product_;
  TrialNumbers& numbers_;
  std::int64_t workspace_bytes_ = 0;
  bool tried_ = false;
  std::unique_ptr<MatmulTiming> timing_;
};

MatmulTuning::MatmulTuning(const Session& session, const DeviceOptions& options)
    : session_(session),
      options_(options),
      times_(options.tune != Tuning::off && session.cublaslt),
      equal_bits_(options.tune == Tuning::equal_bits),
      cache_(cache_directory(options)) {
  if (!times_) return;
  std::string of = concat(describe(session.context->gpu()), ", driver of CUDA ", session.driver().version(), ", cuBLASLt ",
                          session.cublaslt->version(), options.precision == MatmulPrecision::tf32 ? " with TF32" : "");
  cache_key_ = concat("timed products of gcomp ", version(), "\n", of, "\n");
  read_cache();
  if (equal_bits_) return;
  choices_.of = std::move(of);
  // Of another GPU or library they say nothing here; whoever keeps them compares them with what is chosen now.
  if (TimedChoices given = parse_timed_choices(options.timed_choices); given.of == choices_.of) choices_ = std::move(given);
}

void MatmulTuning::read_cache() {
  std::string damage;
  const auto bytes = cache_.find(cache_key_, damage);
  if (!damage.empty() && options_.log)
    options_.log(concat("the tuning file ", cache_.path_of(cache_key_).string(), " is begun anew: ", damage));
  if (!bytes) return;
  std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  for (std::size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1)) {
    const std::string_view line = text.substr(0, end);
    if (const std::size_t tab = line.find('\t'); tab != line.npos)
      cached_.emplace(std::string(line.substr(0, tab)), std::string(line.substr(tab + 1)));
  }
}

void MatmulTuning::follow(const TimedChoices& choices) {
  choices_ = choices;
  followed_ = true;
}

/// What each set of algorithms comes to is remembered beside that of the others.
std::string MatmulTuning::key_of(const ProgramProduct& product, const LibraryEpilogue* epilogue) const {
  std::string text = concat(shape_key(product.call, epilogue), " at");
  const auto add = [&](int buffer) { text += concat(" ", position_of(product.program, buffer) % 256); };
  for (const MatrixView* view : {&product.call.a, &product.call.b, &product.call.c}) add(view->buffer);
  if (epilogue)
    for (const std::optional<int>& buffer : {epilogue->bias, epilogue->aux})
      if (buffer) add(*buffer);
  return concat(text, options_.tune == Tuning::all ? " of all" : equal_bits_ ? " of equal bits" : "");
}

const std::string* MatmulTuning::known(const std::string& key) const {
  for (const auto* choices : {&choices_.chosen, &cached_})
    if (const auto found = choices->find(key); found != choices->end()) return &found->second;
  return nullptr;
}

void MatmulTuning::keep(const std::string& key, const std::string& choice, Origin origin) {
  if (origin == Origin::timed) changed_ = true, cached_[key] = choice;
  if (!equal_bits_) choices_.chosen[key] = choice;
}

/// Whether a faster algorithm could be taken, and its time be noticed.
bool MatmulTuning::is_worth_timing(const CublasLtMatmul& matmul, const ProgramProduct& product) const {
  if (!equal_bits_) return true;
  return operations_of(product.call) >= kLeastOperations &&
         runs_to_tell_apart(product.program, product.call, epilogue_of(matmul, product.call)).has_value();
}

/// Makes the product use the algorithm that is known. False where none is, or the library does not offer it.
bool MatmulTuning::take_known(CublasLtMatmul& matmul, const ProgramProduct& product) {
  const std::string key = key_of(product, epilogue_of(matmul, product.call));
  const std::string* choice = known(key);
  if (!choice) return false;
  for (const MatmulAlgorithm& candidate : matmul.candidates()) {
    if (hexadecimal(candidate.algorithm) != *choice) continue;
    matmul.choose(candidate);
    keep(key, *choice, Origin::known);
    return true;
  }
  if (followed_ && choices_.chosen.contains(key))
    throw DeviceError(
        concat(product.call.origin, ": cuBLASLt does not offer this rank the algorithm that the first rank computes with"));
  return false;
}

/// How long each algorithm takes, in the library's order, without those that fail.
std::vector<MatmulTuning::Timed> MatmulTuning::time_all(CublasLtMatmul& matmul, const MatmulTiming& timing,
                                                        const MatmulCall& call) const {
  std::vector<Timed> timed;
  const std::vector<MatmulAlgorithm>& candidates = matmul.candidates();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    matmul.choose(candidates[i]);
    const MatmulTiming::Outcome outcome = timing.time(matmul);
    if (outcome.status != CUBLAS_STATUS_SUCCESS && options_.log)
      options_.log(concat(call.origin, ": algorithm ", i + 1, " of ", candidates.size(),
                          " that cuBLASLt offers fails and is passed over: cublasLtMatmul gave status ",
                          static_cast<int>(outcome.status)));
    if (outcome.status == CUBLAS_STATUS_SUCCESS) timed.push_back({candidates[i], outcome.milliseconds});
  }
  return timed;
}

/// Makes the product use its fastest algorithm, or the fastest with the bits of the first, and gives the milliseconds; none where
/// all fail. The trial has its memory.
std::optional<float> MatmulTuning::take_fastest(CublasLtMatmul& matmul, Trial& trial) const {
  const MatmulTiming& timing = *trial.timing();
  std::vector<Timed> timed = time_all(matmul, timing, trial.call());
  if (timed.empty()) return std::nullopt;
  const Timed first = timed[0];
  std::ranges::stable_sort(timed, {}, &Timed::milliseconds);
  const Timed* best = &timed[0];
  if (equal_bits_) {
    const std::optional<TellingRuns> runs =
        runs_to_tell_apart(trial.product().program, trial.call(), epilogue_of(matmul, trial.call()));
    const auto fits = [&](const Timed& one) {
      return one.milliseconds >= kAsFast * first.milliseconds ||
             (runs && timing.are_alike(matmul, first.algorithm, one.algorithm, *runs));
    };
    best = &*std::ranges::find_if(timed, fits);
    if (best->milliseconds >= kAsFast * first.milliseconds) best = &first;
  }
  matmul.choose(best->algorithm);
  return best->milliseconds;
}

/// Makes the product use the algorithm that is known, else the fastest, else, where memory is too short, the favourite: that is
/// kept for the run alone. False where all fail.
bool MatmulTuning::settle(CublasLtMatmul& matmul, Trial& trial) {
  if (matmul.candidates().size() < 2 || !is_worth_timing(matmul, trial.product()) || take_known(matmul, trial.product()))
    return true;
  const std::string key = key_of(trial.product(), epilogue_of(matmul, trial.call()));
  const MatmulTiming* timing = trial.timing();
  if (timing && !take_fastest(matmul, trial)) return false;
  keep(key, hexadecimal(matmul.chosen().algorithm), timing ? Origin::timed : Origin::known);
  return true;
}

/// Of a product by the algorithm in use and the kernel after it; none where the library fails.
std::optional<float> MatmulTuning::time_with_kernel(const CublasLtMatmul& plain, Trial& trial) const {
  const KernelLaunch& launch = trial.call().epilogue->after;
  DeviceOptions quiet = options_;  // the program's kernels are told of when they are all loaded
  quiet.log = {};
  quiet.kernels = {};
  quiet.kernel_progress = {};
  const GridKernel kernel = kernel_of(launch, options_.precision == MatmulPrecision::tf32);
  const KernelSet loaded(session_.context, trial.product().program, {kernel.kernel}, trial.product().kernel_binary, quiet);
  const FollowingKernel after{.function = loaded.function(kernel.kernel), .grid = kernel.grid, .launch = &launch};
  allow_shared_memory(*session_.context, after.function, after.grid, launch.origin);
  const MatmulTiming::Outcome outcome = trial.timing()->time(plain, &after);
  if (outcome.status != CUBLAS_STATUS_SUCCESS) return std::nullopt;
  return outcome.milliseconds;
}

/// Settles the faster of the two ways, or the one that does not fail, and says whether it is the plain one.
bool MatmulTuning::is_plain_faster(MatmulWays& ways, Trial& trial) {
  const std::string key = key_of(trial.product(), &*trial.call().epilogue->library);
  if (const std::string* choice = known(key); choice && *choice == kPlain) {
    keep(key, kPlain, Origin::known);
    return true;
  }
  if (take_known(*ways.fused, trial.product())) return false;
  const MatmulTiming* timing = trial.timing();
  if (!timing) {
    keep(key, hexadecimal(ways.fused->chosen().algorithm), Origin::known);
    return false;
  }
  const std::optional<float> fused = take_fastest(*ways.fused, trial);
  const std::optional<float> plain = settle(*ways.plain, trial) ? time_with_kernel(*ways.plain, trial) : std::nullopt;
  const bool is_plain = !fused || (plain && *plain < *fused);
  if (fused || plain) keep(key, is_plain ? kPlain : hexadecimal(ways.fused->chosen().algorithm), Origin::timed);
  return is_plain;
}

std::unique_ptr<CublasLtMatmul> MatmulTuning::choose(MatmulWays ways, const ProgramProduct& product) {
  if (!times_) return std::move(ways.fused ? ways.fused : ways.plain);
  Trial trial(session_, ways, product, numbers_);
  if (ways.fused && ways.plain) {
    if (!is_plain_faster(ways, trial)) return std::move(ways.fused);
    ways.fused.reset();
  }
  std::unique_ptr<CublasLtMatmul>& only = ways.fused ? ways.fused : ways.plain;
  if (only && !settle(*only, trial))
    throw DeviceError(
        concat(product.call.origin, ": all ", only->candidates().size(),
               " algorithms that cuBLASLt offers for this product fail; --no-cublaslt computes without this library"));
  return std::move(only);
}

void MatmulTuning::save() {
  if (!changed_ || !cache_.unusable().empty()) return;
  std::string text;
  for (const auto& [product, choice] : cached_) text += concat(product, "\t", choice, "\n");
  if (const std::string failure = cache_.store(cache_key_, std::as_bytes(std::span(text))); !failure.empty() && options_.log)
    options_.log(concat("the timings of matrix products are not kept: ", failure));
  changed_ = false;
}

}  // namespace gcomp::runtime::cuda
