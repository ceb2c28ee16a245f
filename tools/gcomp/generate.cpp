// gcomp generate: tokens from a language model, as text or as ids.
#include "gcomp/generate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "gcomp/driver/generation.h"
#include "ir/base/error.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/compile_progress.h"
#include "tools/gcomp/interrupt.h"
#include "tools/gcomp/lora_flags.h"
#include "tools/gcomp/options.h"
#include "tools/gcomp/report.h"

namespace gcomp::tools {
namespace {

struct GenerateFlags {
  std::string model, prompt, prompt_ids, vocabulary, output, top_k, seed;
  std::int64_t tokens = 100;
  std::optional<std::int64_t> context;
  std::optional<double> temperature, top_p;
  bool has_prompt = false, has_prompt_ids = false;
  ModelOptions model_options;
  LoraFlags lora;
  DeviceOptions device;
  TrustOptions trust;
};

[[noreturn]] void refuse_generation(const std::string& message) { throw UserError(message, ExitCode::usage); }

/// "1, 2 3" as numbers: one comma, or none, between two of them.
std::vector<std::int64_t> parse_ids(std::string text, const std::string& flag) {
  bool expects_id = text.find(',') != text.npos;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ',' && std::exchange(expects_id, true))
      refuse_generation(concat(flag, ": found nothing before the comma at byte ", i + 1, ", wanted an id"));
    if (text[i] == '\n' || text[i] == '\t') text[i] = ' ';
    if (text[i] != ' ' && text[i] != ',') expects_id = false;
  }
  if (expects_id) refuse_generation(concat(flag, ": found nothing after the last comma, wanted an id"));
  std::ranges::replace(text, ',', ' ');
  std::vector<std::int64_t> ids;
  for (std::size_t begin = text.find_first_not_of(' '); begin != text.npos; begin = text.find_first_not_of(' ', begin)) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    ids.push_back(parse_integer(text.substr(begin, end - begin), flag));
    begin = end;
  }
  return ids;
}

/// None: greedy.
std::optional<Sampling> parse_sampling(const GenerateFlags& flags) {
  if (!flags.temperature && flags.top_k.empty() && !flags.top_p) {
    if (!flags.seed.empty())
      refuse_generation("--seed has a meaning only with --temperature, --top-k or --top-p: else nothing is drawn");
    return std::nullopt;
  }
  Sampling sampling{.temperature = flags.temperature.value_or(1), .top_p = flags.top_p.value_or(1)};
  if (!flags.top_k.empty() && (sampling.top_k = parse_integer(flags.top_k, "--top-k")) < 1)
    refuse_generation(concat("--top-k ", flags.top_k, ": wanted 1 or more"));
  if (!flags.seed.empty()) {
    const std::int64_t seed = parse_integer(flags.seed, "--seed");
    if (seed < 0) refuse_generation(concat("--seed ", flags.seed, ": wanted a whole number from 0 up"));
    sampling.seed = static_cast<std::uint64_t>(seed);
  }
  check(sampling);
  return sampling;
}

class Generation {
 public:
  Generation(const GenerateFlags& flags, const Console& console)
      : flags_(flags), console_(console), sampling_(parse_sampling(flags)) {
    if (flags.has_prompt == flags.has_prompt_ids) refuse_generation("give either --prompt TEXT or --prompt-ids 1,2,3");
    if (flags.tokens < 1) refuse_generation(concat("--tokens ", flags.tokens, ": wanted 1 or more"));
    require_from(1, "--context", flags.context);
    if (!flags.vocabulary.empty()) vocabulary_ = Vocabulary::load(flags.vocabulary);
    prompt_ = prompt();
    if (prompt_.empty()) refuse_generation("the prompt is empty; a model needs a token to begin with");
  }

  void run() {
    Generator generator = make_generator();
    generator.prepare(static_cast<std::int64_t>(prompt_.size()) + flags_.tokens - 1);
    console_.clear_status();
    if (flags_.context && *flags_.context != generator.context())
      refuse_generation(concat("--context ", *flags_.context, ": '", flags_.model, "' takes ", generator.context(),
                               " tokens, which its file, --dim or --shapes fixes; leave --context out"));
    console_.say("device: " + generator.device());
    report_context(generator);
    if (vocabulary_ && vocabulary_->size() != generator.vocabulary())
      throw UserError(concat("'", flags_.vocabulary, "' has ", vocabulary_->size(), " tokens, '", flags_.model, "' has logits for ",
                             generator.vocabulary()));
    for (const std::int64_t id : prompt_)
      if (id < 0 || id >= generator.vocabulary())
        throw UserError(concat("the prompt has token ", id, ", and '", flags_.model, "' knows 0 to ", generator.vocabulary() - 1));
    const Interrupt interrupt;
    for (const std::int64_t id : prompt_) print(id);
    const auto start = std::chrono::steady_clock::now();
    GenerateOptions options{.tokens = flags_.tokens, .sampling = {}};
    if (sampling_) options.sampling = *sampling_;
    const std::vector<std::int64_t> ids = generator.generate(prompt_, options, [&](std::int64_t id) {
      print(id);
      return interrupt.signal() == 0;
    });
    console_.result("");
    finish(ids, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    if (const int signal = interrupt.signal(); signal != 0 && static_cast<std::int64_t>(ids.size()) < flags_.tokens)
      throw Unfinished{concat("interrupted by ", name_of_signal(signal), " after token ", ids.size(), " of ", flags_.tokens),
                       exit_code_of_signal(signal), nullptr};
  }

 private:
  std::vector<std::int64_t> prompt() const {
    if (flags_.has_prompt_ids) return parse_ids(flags_.prompt_ids, "--prompt-ids");
    if (!vocabulary_) return parse_ids(flags_.prompt, "--prompt (ids, for there is no --vocab)");
    try {
      return vocabulary_->encode(flags_.prompt);
    } catch (const UserError& error) { throw UserError(concat("--prompt: ", error.what(), " '", flags_.vocabulary, "'")); }
  }

  Generator make_generator() {
    runtime::DeviceOptions device = flags_.device.parse(console_);
    compiling_.watch(device);
    const runtime::ArtifactTrust trust = flags_.trust.parse(flags_.model);
    if (is_artifact(flags_.model)) return Generator::load(flags_.model, flags_.output, device, flags_.device.request(), trust);
    driver::GeneratorOptions options{.output = flags_.output, .context = flags_.context.value_or(0)};
    options.forward.graph = flags_.model_options.parse();
    options.forward.graph.lora = flags_.lora.parse();
    options.forward.device = flags_.device.request();
    options.forward.device_options = device;
    compiling_.watch(options.forward.hooks, options.forward.device_options);
    options.forward.hooks.internal_error = [this](const ir::Graph& graph, const std::string& error) {
      report_internal_error(console_, graph, error);
    };
    return driver::make_generator(Model::load(flags_.model), options);
  }

  void report_context(const Generator& generator) const {
    const auto length = static_cast<std::int64_t>(prompt_.size()) + flags_.tokens;
    console_.say(concat("context: ", generator.context(), generator.context() == 1 ? " token" : " tokens",
                        ", vocabulary: ", generator.vocabulary(),
                        length > generator.context() ? "; of a longer text the model sees the last ones" : ""));
  }

  void print(std::int64_t id) {
    if (vocabulary_) text_ += vocabulary_->text(id);
    console_.stream(vocabulary_ ? vocabulary_->text(id) : concat(first_ ? "" : " ", id));
    first_ = false;
  }

  void finish(const std::vector<std::int64_t>& ids, double seconds) const {
    const double rate = static_cast<double>(ids.size()) / seconds;
    console_.say(concat(ids.size(), ids.size() == 1 ? " token" : " tokens", ", ", std::llround(rate), " a second"));
    nlohmann::json json{{"prompt_ids", prompt_}, {"ids", ids}, {"seconds", seconds}, {"tokens_per_second", rate}};
    if (vocabulary_) json["text"] = text_;
    console_.result_json(std::move(json));
  }

  const GenerateFlags& flags_;
  const Console& console_;
  CompileProgress compiling_{console_};
  std::optional<Sampling> sampling_;
  std::optional<Vocabulary> vocabulary_;
  std::vector<std::int64_t> prompt_;
  std::string text_;
  bool first_ = true;
};

}  // namespace

Command add_generate(ArgumentParser& root, Console& console) {
  auto flags = std::make_shared<GenerateFlags>();
  ArgumentParser parser = root.add_subcommand("generate", "go on with a text, by a model from ids of tokens to logits");
  parser.add_option("MODEL", flags->model, "an .onnx file, or a .gcx").required();
  parser.add_option("--prompt", flags->prompt, "what the text begins with; without --vocab the ids of its tokens")
      .type_name("TEXT");
  parser.add_option("--prompt-ids", flags->prompt_ids, "the same as ids, whatever the vocabulary").type_name("N,N,...");
  parser.add_option("--vocab", flags->vocabulary, "what the ids stand for, characters or bytes (docs/generate.md)")
      .type_name("JSON");
  parser.add_option("--tokens", flags->tokens, "how many new ones (default 100)").type_name("N");
  const std::string group = "How a token is chosen (default: the likeliest)";
  parser
      .add_option("--temperature", flags->temperature,
                  "draw, from logits divided by this (default 1 where another of these is given)")
      .type_name("X")
      .group(group);
  parser.add_option("--top-k", flags->top_k, "draw among the N likeliest").type_name("N").group(group);
  parser.add_option("--top-p", flags->top_p, "draw among the fewest likeliest that have this probability together")
      .type_name("X")
      .group(group);
  parser.add_option("--seed", flags->seed, "of the draws (default 0): the same seed, the same text").type_name("N").group(group);
  parser
      .add_option("--context", flags->context,
                  "how many tokens the model sees, where its file leaves that open (default: all that this run comes to)")
      .type_name("N");
  parser
      .add_option("--output", flags->output,
                  "the model's output with the logits (default: the first of floats [batch, length, any])")
      .type_name("NAME");
  flags->model_options.add_precision(parser, "what floats compute in (default: as the file says)");
  flags->model_options.add_shapes(parser);
  flags->lora.add_adapter(parser);
  flags->device.add(parser);
  flags->trust.add(parser);
  parser.set_footer(
      "Examples:\n"
      "  gcomp generate gpt.onnx --vocab vocab.json --prompt 'ROMEO:' --tokens 200 --temperature 0.8 --top-k 40 --seed 1\n"
      "  gcomp generate gpt.onnx --prompt-ids 1,2,3 --tokens 20\n"
      "  gcomp generate gpt.gcx --prompt '1 2 3' --top-p 0.9 --json\n\n"
      "The prompt and what follows it go to stdout as they come. Texts shorter than the model's context are filled up on the "
      "right,\n"
      "which changes nothing for models that look back alone; others are refused.");
  return {parser, [parser, flags, &console] {
            const std::vector<std::string> given = parser.given();
            const auto has = [&](const char* flag) { return std::find(given.begin(), given.end(), flag) != given.end(); };
            flags->has_prompt = has("--prompt");
            flags->has_prompt_ids = has("--prompt-ids");
            constexpr std::string_view kDecided[] = {"--context"};
            if (is_artifact(flags->model)) refuse_decided(parser, flags->model, kDecided);
            Generation(*flags, console).run();
          }};
}

}  // namespace gcomp::tools
