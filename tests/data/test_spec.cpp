// How --data is read.
#include <gtest/gtest.h>

#include <fstream>

#include "data/format.h"
#include "ir/base/error.h"
#include "runtime/files/npz.h"
#include "tests/temporary_directory.h"

namespace gcomp::data {
namespace {

TEST(DataSpec, RecognisesAnArchiveByItsContent) {
  const test::TemporaryDirectory folder;
  const std::filesystem::path path = folder / "arrays.bin";
  runtime::write_npz(path, std::vector<NamedTensor>{{"x", Tensor::of(DType::f32, {3}, {1, 2, 3})}});
  const DataSpec spec = parse_spec(path.string());
  EXPECT_EQ(spec.format->definition.name, "npz");
  const std::unique_ptr<Source> source = open(spec);
  EXPECT_EQ(source->rows(), 3);
  EXPECT_EQ(source->arrays()[0].first, "x");
  EXPECT_EQ(parse_spec("npz:" + path.string()).path, path);
}

TEST(DataSpec, NamesTheNearestFormat) {
  try {
    parse_spec("npx:nowhere.npz");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'npz'"), std::string::npos) << error.what();
    EXPECT_EQ(error.code(), ExitCode::usage);
  }
}

TEST(DataSpec, SaysWhatItFoundWhereNoFormatFits) {
  const test::TemporaryDirectory folder;
  const auto refusal = [&](const char* name, std::string_view bytes) {
    const std::filesystem::path path = folder / name;
    std::ofstream(path, std::ios::binary) << bytes;
    try {
      parse_spec(path.string());
    } catch (const UserError& error) { return std::string(error.what()); }
    return std::string("accepted");
  };
  using namespace std::literals;
  EXPECT_NE(refusal("none.csv", "").find("none.csv' is empty, wanted a file with data"), std::string::npos);
  for (const std::string_view text : {"\xff\xfe"
                                      "a\0,\0b\0\n\0"sv,
                                      "a\0,\0b\0\n\0"sv, "\0a\0,\0b\0\n"sv}) {
    const std::string found = refusal("wide.csv", text);
    EXPECT_NE(found.find("wide.csv' is text in UTF-16, wanted UTF-8; iconv -f UTF-16 -t UTF-8"), std::string::npos) << found;
  }
  const std::string other = refusal("x.exe",
                                    "\x7f"
                                    "ELF\1"sv),
                    tokens = refusal("tokens.bin", "\2\0\3\0\4\0\5\0"sv);
  EXPECT_NE(other.find("x.exe', a file of 5 bytes that begins with 7f 45 4c 46, is of no format"), std::string::npos) << other;
  EXPECT_NE(tokens.find("a file of 8 bytes that begins with 02 00 03 00, is of no format"), std::string::npos) << tokens;
}

}  // namespace
}  // namespace gcomp::data
