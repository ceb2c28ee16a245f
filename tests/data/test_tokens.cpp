// Windows of token files, against nanoGPT's get_batch() and llm.c's headers (tests/fixtures/data/make_arrays.py).
#include <nlohmann/json.hpp>

#include "tests/data/source_reading.h"

namespace gcomp::data::test {
namespace {

using Numbers = std::vector<std::int64_t>;

std::string raw(int first, int count) {
  std::string bytes;
  for (int i = first; i < first + count; ++i) bytes += bytes_of<std::uint16_t>({static_cast<std::uint16_t>(i)});
  return bytes;
}

TEST(TokensFormat, WindowsAreThoseOfNanoGpt) {
  const nlohmann::json recorded = nlohmann::json::parse(contents(array_fixture("nanogpt.json")));
  const auto length = recorded["length"].get<std::int64_t>();
  const std::string spec = "tokens:" + array_fixture("nanogpt.bin").string();
  for (const DType dtype : {DType::i64, DType::i32}) {
    const auto source = open_spec(spec + ",stride=1", token_input(length, dtype, "ids"));
    EXPECT_EQ(array_names(*source), (std::vector<std::string>{"ids", "label"}));
    EXPECT_EQ(source->arrays()[0].second, (TensorType{dtype, {length}}));
    EXPECT_EQ(source->rows(), 300 - length);  // as many as torch.randint(len(data) - block_size) draws from
    for (std::size_t i = 0; i < recorded["ix"].size(); ++i) {
      const auto row = recorded["ix"][i].get<std::int64_t>();
      EXPECT_EQ(integers(*source, "ids", row), recorded["x"][i].get<Numbers>()) << row;
      EXPECT_EQ(integers(*source, "label", row), recorded["y"][i].get<Numbers>()) << row;
    }
    EXPECT_TRUE(source->is_sequence());
    EXPECT_EQ(source->overlap(), length - 1);
    EXPECT_EQ(source->whole(0), nullptr);
  }
}

TEST(TokensFormat, WindowsFollowOneAnother) {
  const auto source = open_spec("tokens:" + array_fixture("nanogpt.bin").string() + ",length=24");
  const auto every = open_spec("tokens:" + array_fixture("nanogpt.bin").string() + ",length=24,stride=1");
  EXPECT_EQ(array_names(*source), (std::vector<std::string>{"tokens", "label"}));
  EXPECT_EQ(source->rows(), (300 - 24 - 1) / 24 + 1);
  EXPECT_EQ(source->overlap(), 0);
  for (std::int64_t i = 0; i < source->rows(); ++i) EXPECT_EQ(integers(*source, "tokens", i), integers(*every, "tokens", 24 * i));
  EXPECT_EQ(open_spec("tokens:" + array_fixture("nanogpt.bin").string() + ",length=24,stride=10")->overlap(), 2);
  EXPECT_EQ(open_spec("tokens:" + array_fixture("nanogpt.bin").string() + ",length=299")->rows(), 1);
}

TEST(TokensFormat, LengthComesFromTheModel) {
  const std::string spec = "tokens:" + array_fixture("nanogpt.bin").string();
  const Shape eight{8}, five{5}, open{-1};
  const auto i64 = DType::i64;
  const std::vector<WantedArray> two{{.name = "input_ids", .dtype = i64, .row = eight},
                                     {.name = "position_ids", .dtype = i64, .row = eight}};
  EXPECT_EQ(open_spec(spec, two)->arrays()[0], (NamedType{"tokens", {i64, {8}}}));  // which of two is said by --map
  const std::vector<WantedArray> unequal{{.name = "a", .dtype = i64, .row = eight}, {.name = "b", .dtype = i64, .row = five}};
  expect_contains(error_of([&] { open_spec(spec, unequal); }), {"give length=N"});
  const std::vector<WantedArray> unsettled{{.name = "ids", .dtype = i64, .row = open}};
  expect_contains(error_of([&] { open_spec(spec, unsettled); }),
                  {"nanogpt.bin'", "does not say how long its windows", "give length=N"});
  EXPECT_EQ(open_spec(spec + ",length=7", unsettled)->arrays()[0], (NamedType{"ids", {i64, {7}}}));
  const std::vector<WantedArray> floats{{.name = "x", .dtype = DType::f32, .row = eight}};
  expect_contains(error_of([&] { open_spec(spec, floats); }), {"give length=N"});
  const auto alone = open_spec(spec);
  EXPECT_EQ(alone->arrays()[0], (NamedType{"tokens", {i64, {256}}}));
  ASSERT_EQ(alone->notes().size(), 1u);
  expect_contains(alone->notes()[0], {"windows have 256 tokens", "length=N"});
}

TEST(TokensFormat, RecognisesTheHeadersOfLlmC) {
  for (const auto& [name, most] : {std::pair<const char*, std::int64_t>{"llmc_gpt2.bin", 50257}, {"llmc_llama3.bin", 128256}}) {
    const fs::path path = array_fixture(name);
    EXPECT_EQ(parse_spec(path.string()).format->definition.name, "tokens");
    const auto source = open_spec(path.string(), token_input(10, DType::i32));
    EXPECT_EQ(source->rows(), 9);
    EXPECT_EQ(source->arrays()[0].second.dtype, most > 65536 ? DType::i64 : DType::i32);  // 32 bits need not fit i32
    for (std::int64_t row = 0; row < 9; ++row)
      for (std::int64_t i = 0; i < 10; ++i) {
        EXPECT_EQ(integers(*source, "tokens", row)[static_cast<std::size_t>(i)], (10 * row + i) * 12345 % most);
        EXPECT_EQ(integers(*source, "label", row)[static_cast<std::size_t>(i)], (10 * row + i + 1) * 12345 % most);
      }
  }
}

TEST(TokensFormat, SeveralFilesAreNotOneText) {
  const TemporaryDirectory folder;
  put(folder / "train_1.bin", raw(0, 11));    // windows at 0 and 5
  put(folder / "train_2.bin", raw(1000, 3));  // none
  put(folder / "train_3.bin", raw(2000, 9));  // one
  put(folder / "val_1.bin", raw(3000, 20));
  const auto source = open_spec("tokens:" + folder.path().string() + ",length=5");
  EXPECT_EQ(source->rows(), 3);
  EXPECT_EQ(integers(*source, "label", 1), (Numbers{6, 7, 8, 9, 10}));
  EXPECT_EQ(integers(*source, "tokens", 2), (Numbers{2000, 2001, 2002, 2003, 2004}));
  expect_contains(source->where(2), {"train_3.bin', tokens 0 to 5"});
  ASSERT_EQ(source->notes().size(), 2u);
  expect_contains(source->notes()[0], {"part=train leaves out 'val_1.bin'"});
  expect_contains(source->notes()[1], {"train_2.bin' is left out: its 3 tokens are too few"});
  EXPECT_EQ(open_spec("tokens:" + folder.path().string() + ",length=5,part=val")->rows(), 3);
  EXPECT_EQ(open_spec("tokens:" + folder.path().string() + "/*_[13].bin,length=5")->rows(), 6);
  expect_refused("tokens:" + folder.path().string() + "/no*.bin,length=5", {"no file matches '"});
  expect_refused("tokens:" + folder.path().string() + "/*.bin,length=5,part=val", {"part= chooses among the files of a folder"});
  expect_refused("tokens:" + folder.path().string() + ",length=50", {"has no file with tokens for a window of 50"});
}

TEST(TokensFormat, ReadsThirtyTwoBits) {
  const TemporaryDirectory folder;
  put(folder / "t.bin", bytes_of<std::uint32_t>({1, 70000, 4294967295, 3}));
  const auto source = open_spec("tokens:" + (folder / "t.bin").string() + ",dtype=uint32,length=3");
  EXPECT_EQ(integers(*source, "tokens", 0), (Numbers{1, 70000, 4294967295}));
  EXPECT_EQ(integers(*source, "label", 0), (Numbers{70000, 4294967295, 3}));
}

TEST(TokensFormat, StaysOnDisk) {
  const TemporaryDirectory folder;
  const fs::path path = folder / "t.bin";
  put(path, "");
  fs::resize_file(path, 40'000'000'000);
  const std::int64_t before = resident_bytes();
  const auto source = open_spec("tokens:" + path.string() + ",length=1024");
  Tensor row(DType::i64, {1024});
  for (std::int64_t i = 0; i < source->rows(); i += 10'007) source->fetch(1, i, row.bytes());
  EXPECT_LT(resident_bytes() - before, 16 << 20);
  fs::resize_file(path, 4000);
  expect_contains(error_of([&] { integers(*source, "label", 5); }), {"array 'label', row 5", "t.bin'", "it has become shorter"});
}

TEST(TokensFormat, RefusesWhatIsDamaged) {
  const TemporaryDirectory folder;
  const fs::path path = folder / "t.bin";
  const std::string name = "tokens:" + path.string();
  const std::string gpt2 = contents(array_fixture("llmc_gpt2.bin"));
  const auto refused = [&](const std::string& bytes, std::initializer_list<const char*> parts) {
    put(path, bytes);
    expect_refused(name, parts);
  };
  refused(raw(0, 20) + "x", {"t.bin' has 41 bytes, wanted 2 for each token (dtype=uint16)"});
  refused(raw(0, 4), {"t.bin' has 4 tokens, too few for a window of 4 and the token after it"});
  refused("", {"t.bin' has 0 tokens"});
  refused(gpt2.substr(0, gpt2.size() - 2), {"t.bin' has 1222 bytes, wanted 1024 of header and 2 for each of 100 tokens"});
  refused(gpt2 + "..", {"t.bin' has 1226 bytes"});
  refused(gpt2.substr(0, 200), {"t.bin' has 200 bytes, wanted 1024 of header"});
  refused(bytes_of<std::uint32_t>({20240520, 2, 100}) + gpt2.substr(12), {"version 2 of llm.c's token files, wanted 1"});
  refused(bytes_of<std::uint32_t>({20240801, 1, 100}) + gpt2.substr(12), {"version 1 of llm.c's token files, wanted 7"});
  refused(bytes_of<std::uint32_t>({20240520, 1, ~0u}) + gpt2.substr(12), {"for each of 4294967295 tokens"});
  refused(bytes_of<std::uint32_t>({20240522, 1, 100}) + gpt2.substr(12), {"multiple-choice questions of llm.c"});
  put(path, gpt2);
  expect_refused(name + ",dtype=uint32", {"its header says uint16, but dtype=uint32 was given"});
  expect_refused(name + ",length=0", {"length"});
  expect_refused(name + ",stride=-1", {"stride"});
}

}  // namespace
}  // namespace gcomp::data::test
