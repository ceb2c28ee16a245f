// How --data is read.
#include <gtest/gtest.h>

#include "data/format.h"
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

}  // namespace
}  // namespace gcomp::data
