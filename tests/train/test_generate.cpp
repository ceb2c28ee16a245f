// Texts from a model: how a token is chosen, against Hugging Face's warpers (tests/fixtures/generate/record_sampling.py), what a
// model must be, vocabularies, and the command. That greedy texts are onnxruntime's is tests/oracle/test_generate.py.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "gcomp/gcomp.h"
#include "gcomp/generate.h"
#include "gcomp/ops.h"
#include "tests/drive/command.h"
#include "tests/drive/recorded_model.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

using nlohmann::json;
using runtime::test::put;
using runtime::test::TemporaryDirectory;
using runtime::test::user_error;

const std::map<std::string, Tensor>& warped_record() {
  static const std::map<std::string, Tensor> kRecord =
      load_arrays(std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/generate/sampling.npz");
  return kRecord;
}

std::vector<double> row_of(const Tensor& array, std::int64_t row) {
  const std::int64_t width = array.shape().back();
  std::vector<double> values;
  for (std::int64_t i = 0; i < width; ++i) values.push_back(array.at(row * width + i));
  return values;
}

TEST(Sampling, IsWhatHuggingFaceDoes) {
  const Tensor &logits = warped_record().at("logits"), &cases = warped_record().at("cases"),
               &wanted = warped_record().at("probabilities");
  const std::int64_t texts = logits.shape()[0];
  for (std::int64_t c = 0; c < cases.shape()[0]; ++c) {
    const std::vector<double> numbers = row_of(cases, c);
    const Sampling sampling{.temperature = numbers[0], .top_k = static_cast<std::int64_t>(numbers[1]), .top_p = numbers[2]};
    for (std::int64_t t = 0; t < texts; ++t) {
      const std::vector<double> found = sampled_probabilities(row_of(logits, t), sampling), theirs = row_of(wanted, c * texts + t);
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i], theirs[i], 1e-12) << "temperature " << numbers[0] << ", top_k " << numbers[1] << ", top_p "
                                                << numbers[2] << ", text " << t << ", token " << i;
    }
  }
}

/// Pearson's chi-squared of many draws.
TEST(Sampling, DrawsAreAsFrequentAsTheirProbabilities) {
  const std::vector<double> logits = row_of(warped_record().at("logits"), 1);
  constexpr int kDraws = 20000;
  for (const Sampling& sampling :
       {Sampling{}, Sampling{.temperature = 0.7, .top_k = 12, .seed = 3}, Sampling{.top_p = 0.6, .seed = 11}}) {
    const std::vector<double> probabilities = sampled_probabilities(logits, sampling);
    std::vector<int> counts(logits.size());
    for (std::uint64_t i = 0; i < kDraws; ++i) ++counts[static_cast<std::size_t>(sample_token(logits, sampling, i))];
    double chi = 0;
    int kinds = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (probabilities[i] == 0) {
        EXPECT_EQ(counts[i], 0) << i;
        continue;
      }
      const double wanted = probabilities[i] * kDraws;
      chi += (counts[i] - wanted) * (counts[i] - wanted) / wanted;
      ++kinds;
    }
    EXPECT_LT(chi, kinds - 1 + 4 * std::sqrt(2.0 * (kinds - 1))) << kinds << " tokens";
  }
}

TEST(Sampling, TheSeedDecides) {
  const std::vector<double> logits = row_of(warped_record().at("logits"), 1);
  const auto text = [&](std::uint64_t seed) {
    std::vector<std::int64_t> tokens;
    for (std::uint64_t i = 0; i < 40; ++i) tokens.push_back(sample_token(logits, {.seed = seed}, i));
    return tokens;
  };
  EXPECT_EQ(text(5), text(5));
  EXPECT_NE(text(5), text(6));
  EXPECT_NE(text(5), text(5 + (std::uint64_t{1} << 32)));
}

TEST(Sampling, WhatCannotBeChosenFrom) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinite = std::numeric_limits<double>::infinity();
  EXPECT_NE(user_error([&] { greedy_token(std::vector<double>{0, kNan}); }).find("the logit of token 1 is NaN"), std::string::npos);
  EXPECT_NE(user_error([&] {
              sample_token(std::vector<double>{-kInfinite, -kInfinite}, {}, 0);
            }).find("the largest logit is -inf"),
            std::string::npos);
  EXPECT_EQ(sample_token(std::vector<double>{-kInfinite, 0, -kInfinite}, {}, 0), 1) << "what a model rules out";
  EXPECT_EQ(greedy_token(std::vector<double>{1, 3, 3}), 1) << "the first of equals";
  EXPECT_NE(user_error([] { check(Sampling{.temperature = 0}); }).find("temperature 0"), std::string::npos);
  EXPECT_NE(user_error([] { check(Sampling{.top_k = -1}); }).find("top_k -1"), std::string::npos);
  EXPECT_NE(user_error([] { check(Sampling{.top_p = 0}); }).find("top_p 0"), std::string::npos);
  EXPECT_NE(user_error([] { check(Sampling{.top_p = 1.5}); }).find("top_p 1.5"), std::string::npos);
}

constexpr std::int64_t kTokens = 6;

/// After token i comes i + 2, modulo 6.
Tensor successors() {
  Tensor table(DType::f32, {kTokens, kTokens});
  for (std::int64_t i = 0; i < kTokens; ++i) table.set(i * kTokens + (i + 2) % kTokens, 5);
  return table;
}

Model bigrams(std::int64_t length = 4) {
  return Model::define([length](Layers& nn) {
    nn.output("logits", ops::gather(nn.constant(successors()), nn.input("ids", DType::i64, {kBatch, length}), 0));
  });
}

GeneratorOptions on_cpu() {
  GeneratorOptions options;
  options.device = DeviceRequest::cpu;
  return options;
}

TEST(Generator, GoesOnPastItsContext) {
  Generator generator(bigrams(), on_cpu());
  const std::vector<std::int64_t> prompt{1};
  std::vector<std::int64_t> told;
  const std::vector<std::int64_t> text = generator.generate(prompt, {.tokens = 9}, [&](std::int64_t id) {
    told.push_back(id);
    return true;
  });
  EXPECT_EQ(text, (std::vector<std::int64_t>{3, 5, 1, 3, 5, 1, 3, 5, 1}));
  EXPECT_EQ(told, text);
  EXPECT_EQ(generator.context(), 4);
  EXPECT_EQ(generator.vocabulary(), kTokens);
  const std::vector<std::int64_t> stopped = generator.generate(prompt, {.tokens = 9}, [](std::int64_t id) { return id != 5; });
  EXPECT_EQ(stopped, (std::vector<std::int64_t>{3, 5})) << "a caller may end it";
  const std::vector<std::int64_t> longer{0, 2, 4, 0, 2, 4, 1};
  EXPECT_EQ(generator.generate(longer, {.tokens = 2}), (std::vector<std::int64_t>{3, 5})) << "a prompt longer than the context";
}

TEST(Generator, DrawsWithASeed) {
  Generator generator(bigrams(), on_cpu());
  const std::vector<std::int64_t> prompt{1};
  const auto text = [&](std::uint64_t seed) {
    return generator.generate(prompt, {.tokens = 40, .sampling = Sampling{.temperature = 5, .seed = seed}});
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
  EXPECT_EQ(generator.generate(prompt, {.tokens = 4, .sampling = Sampling{.top_k = 1}}), (std::vector<std::int64_t>{3, 5, 1, 3}));
}

TEST(Generator, WhatIsNoLanguageModel) {
  const auto refusal = [](const Model& model, std::vector<std::int64_t> prompt, const GeneratorOptions& options = on_cpu()) {
    return user_error([&] { Generator(model, options).generate(prompt, {.tokens = 1}); });
  };
  const auto expect = [&](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
  };
  expect(refusal(bigrams(), {}), "the text is empty");
  expect(refusal(bigrams(), {1, 6}), "token 2 of the text is 6, and the model knows 0 to 5");
  expect(refusal(bigrams(), {-1}), "token 1 of the text is -1");
  const Model floats = Model::define([](Layers& nn) { nn.output("y", nn.relu(nn.input("x", DType::f32, {kBatch, 4}))); });
  expect(refusal(floats, {1}), "a model whose input is integers [batch, length]; 'x' is f32 of 2 dimensions");
  const Model two = Model::define([](Layers& nn) {
    Var ids = nn.input("ids", DType::i64, {kBatch, 4});
    nn.output("y", ops::gather(nn.constant(successors()), ids + nn.input("more", DType::i64, {kBatch, 4}), 0));
  });
  expect(refusal(two, {1}), "generate needs one input, the ids of tokens; it has 'ids' and 'more'");
  const Model pooled = Model::define([](Layers& nn) {
    nn.output("y", ops::mean(ops::gather(nn.constant(successors()), nn.input("ids", DType::i64, {kBatch, 4}), 0), {1}));
  });
  expect(refusal(pooled, {1}),
         "generate needs logits [batch, length, vocabulary], here [1, 4, vocabulary]; the model gives 'y: f32[1,6]'");
  GeneratorOptions other = on_cpu();
  other.output = "scores";
  expect(refusal(bigrams(), {1}, other), "in output 'scores'");
  const Model both_ways = Model::define([](Layers& nn) {
    Var rows = ops::gather(nn.constant(successors()), nn.input("ids", DType::i64, {kBatch, 4}), 0);
    nn.output("y", rows + ops::broadcast(ops::sum(rows, {1}, ops::Axes::kept), rows.shape()));
  });
  expect(refusal(both_ways, {1, 2}),
         "the logits at token 2 of 4 depend on what comes behind it: the model does not look back alone");
  const Model faint = Model::define([](Layers& nn) {  // the same with logits of nearly nothing, which decide texts all the same
    Var rows = ops::gather(nn.constant(successors()), nn.input("ids", DType::i64, {kBatch, 4}), 0);
    nn.output("y", (rows + ops::broadcast(ops::sum(rows, {1}, ops::Axes::kept), rows.shape())) * 1e-5);
  });
  expect(refusal(faint, {1, 2}), "depend on what comes behind it");
  Generator whole(both_ways, on_cpu());
  EXPECT_EQ(whole.generate(std::vector<std::int64_t>{0, 0, 0, 0}, {.tokens = 1}).size(), 1u)
      << "a whole context has nothing behind it";
}

TEST(Vocabularies, OfCharacters) {
  const Vocabulary vocabulary = Vocabulary::parse(R"({"kind": "characters", "tokens": ["a", "\n", "é", "漢"]})");
  EXPECT_EQ(vocabulary.size(), 4);
  EXPECT_EQ(vocabulary.encode("aé漢\na"), (std::vector<std::int64_t>{0, 2, 3, 1, 0}));
  EXPECT_EQ(vocabulary.text(3), "漢");
  EXPECT_NE(user_error([&] { vocabulary.encode("aéß"); }).find("'ß', at byte 3 of the text, is no token"), std::string::npos);
  EXPECT_NE(user_error([&] { vocabulary.encode("a\xff"); }).find("at byte 1 of the text, is no token"), std::string::npos);
  EXPECT_NE(user_error([&] { vocabulary.text(4); }).find("token 4 is none of the vocabulary, which has 4"), std::string::npos);
}

TEST(Vocabularies, OfBytes) {
  const Vocabulary all = Vocabulary::parse(R"({"kind": "bytes"})");
  EXPECT_EQ(all.size(), 256);
  EXPECT_EQ(all.encode("é\n"), (std::vector<std::int64_t>{0xC3, 0xA9, 10}));
  const Vocabulary some = Vocabulary::parse(R"({"kind": "bytes", "tokens": [10, 65, 255]})");
  EXPECT_EQ(some.encode("A\xff\n"), (std::vector<std::int64_t>{1, 2, 0}));
  EXPECT_EQ(some.text(2), "\xff");
}

TEST(Vocabularies, ThatAreNone) {
  const auto expect = [](const std::string& text, const std::string& part) {
    const std::string message = user_error([&] { Vocabulary::parse(text); });
    EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
  };
  expect("[]", "wanted an object with a 'kind'");
  expect(R"({"kind": "words", "tokens": ["a"]})", R"('kind' is "words", wanted "characters" or "bytes")");
  expect(R"({"kind": "characters"})", "'tokens' is missing");
  expect(R"({"kind": "characters", "tokens": []})", "'tokens' is missing, or no list of one or more");
  expect(R"({"kind": "characters", "tokens": ["a", "b", "a"]})", "tokens 0 and 2 are both \"a\"");
  expect(R"({"kind": "characters", "tokens": ["ab"]})", "token 0 is \"ab\", wanted one character");
  expect(R"({"kind": "characters", "tokens": ["a", 3]})", "token 1 is 3, wanted one character");
  expect(R"({"kind": "bytes", "tokens": [256]})", "token 0 is 256, wanted a byte from 0 to 255");
  expect(R"({"kind": "bytes", "size": 3})", "unknown member 'size'");
  expect("{\"kind\": \"characters\", \"tokens\": [\"\xff\"]}", "");
}

class GenerateCommand : public testing::Test {
 protected:
  GenerateCommand() {
    json tokens = json::array();
    for (char c = '!'; tokens.size() < 65; ++c) tokens.push_back(std::string(1, c));
    put(vocabulary_, json{{"kind", "characters"}, {"tokens", tokens}}.dump());
  }
  CommandResult generate(const std::vector<std::string>& more, const std::string& model = recorded_model("gpt_tiny").model()) {
    std::vector<std::string> arguments{"generate", model};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  }

  TemporaryDirectory folder_;
  const std::string vocabulary_ = folder_ / "vocab.json";
};

TEST_F(GenerateCommand, TextAndIdsAreTheSameTokens) {
  const CommandResult text = generate({"--vocab", vocabulary_, "--prompt", "ABC", "--tokens", "70"});
  ASSERT_EQ(text.exit_code, 0) << text.errors;
  ASSERT_EQ(text.output.size(), 74u) << text.output;
  EXPECT_EQ(text.output.substr(0, 3), "ABC");
  const CommandResult ids = generate({"--prompt", "32 33, 34", "--tokens", "70"});
  ASSERT_EQ(ids.exit_code, 0) << ids.errors;
  std::string wanted;
  for (const char c : text.output.substr(0, 73)) wanted += (wanted.empty() ? "" : " ") + std::to_string(c - '!');
  EXPECT_EQ(ids.output, wanted + "\n");
  const CommandResult machine = generate({"--vocab", vocabulary_, "--prompt-ids", "32,33,34", "--tokens", "70", "--json"});
  ASSERT_EQ(machine.exit_code, 0) << machine.errors;
  const json result = json::parse(machine.output);
  EXPECT_EQ(result.at("text").get<std::string>() + "\n", text.output);
  EXPECT_EQ(result.at("ids").size(), 70u);
  EXPECT_EQ(result.at("prompt_ids"), json({32, 33, 34}));
  EXPECT_NE(machine.errors.find("context: 64 tokens, vocabulary: 65; of a longer text the model sees the last ones"),
            std::string::npos)
      << machine.errors;
}

TEST_F(GenerateCommand, AnArtifactGivesTheSameText) {
  const RecordedModel gpt = recorded_model("gpt_tiny");
  const std::vector<std::string> options{"--prompt", "1 2 3", "--tokens", "12",   "--temperature", "0.9",
                                         "--top-k",  "30",    "--top-p",  "0.95", "--seed",        "4"};
  const CommandResult wanted = generate(options);
  ASSERT_EQ(wanted.exit_code, 0) << wanted.errors;
  for (const std::string batch : {"1", "3"}) {
    const std::string artifact = folder_ / "m.gcx";
    ASSERT_EQ(run_gcomp({"compile", gpt.model(), "--batch", batch, "-o", artifact}).exit_code, 0);
    const CommandResult found = generate(options, artifact);
    ASSERT_EQ(found.exit_code, 0) << found.errors;
    EXPECT_EQ(found.output, wanted.output) << "batches of " << batch;
  }
  std::vector<std::string> other = options;
  other.back() = "5";
  EXPECT_NE(generate(other).output, wanted.output);
}

TEST_F(GenerateCommand, WhatIsWrongIsSaid) {
  const auto expect = [&](int code, const std::vector<std::string>& flags, const std::string& part) {
    const CommandResult result = generate(flags);
    EXPECT_EQ(result.exit_code, code) << result.errors;
    EXPECT_NE(result.errors.find(part), std::string::npos) << "no '" << part << "' in: " << result.errors;
    EXPECT_EQ(result.output, "");
  };
  expect(2, {}, "give either --prompt TEXT or --prompt-ids 1,2,3");
  expect(2, {"--prompt", "1", "--prompt-ids", "1"}, "give either --prompt TEXT or --prompt-ids 1,2,3");
  expect(2, {"--prompt", ""}, "--prompt is empty: wanted TEXT");
  expect(2, {"--prompt-ids", " , "}, "--prompt-ids: found nothing before the comma at byte 2, wanted an id");
  expect(2, {"--prompt-ids", "1,,2"}, "--prompt-ids: found nothing before the comma at byte 3, wanted an id");
  expect(2, {"--prompt-ids", "1,2,"}, "--prompt-ids: found nothing after the last comma, wanted an id");
  expect(2, {"--prompt", "1", "--context", "0"}, "--context 0: wanted 1 or more");
  expect(2, {"--prompt", "1", "--context", "5"}, "takes 64 tokens, which its file, --dim or --shapes fixes; leave --context out");
  expect(2, {"--prompt", "ROMEO"}, "--prompt (ids, for there is no --vocab): ");
  expect(3, {"--prompt", "1 65"}, "the prompt has token 65, and");
  expect(3, {"--prompt", "-1"}, "the prompt has token -1, and");
  expect(3, {"--prompt", "a~b", "--vocab", vocabulary_}, "--prompt: '~', at byte 1 of the text, is no token of the vocabulary");
  put(vocabulary_, R"({"kind": "bytes"})");
  expect(3, {"--prompt", "a", "--vocab", vocabulary_}, "has 256 tokens, '");
  expect(3, {"--prompt", "a", "--vocab", folder_ / "missing.json"}, "missing.json");
  expect(2, {"--prompt", "1", "--seed", "4"}, "--seed has a meaning only with --temperature, --top-k or --top-p");
  expect(2, {"--prompt", "1", "--temperature", "0"}, "temperature 0: wanted a number above 0");
  expect(2, {"--prompt", "1", "--top-k", "0"}, "--top-k 0: wanted 1 or more");
  expect(2, {"--prompt", "1", "--top-p", "1.1"}, "top_p 1.1");
  expect(2, {"--prompt", "1", "--tokens", "0"}, "--tokens 0: wanted 1 or more");
  const CommandResult images = generate({"--prompt", "1"}, recorded_model("mnist_cnn").model());
  EXPECT_EQ(images.exit_code, 3) << images.errors;
  EXPECT_NE(images.errors.find("generate needs a model whose input is integers [batch, length]"), std::string::npos)
      << images.errors;
}

}  // namespace
}  // namespace gcomp::test
