// .npz archives as sources.
#include "runtime/files/npz.h"
#include "tests/data/source_reading.h"

namespace gcomp::data::test {
namespace {

TEST(NpzFormat, ReadsWhatNumpyWroteAndLeavesOutWhatHasNoRows) {
  const auto source = open_spec(array_fixture("mixed.npz").string());  // its first array has class weights
  EXPECT_EQ(array_names(*source), (std::vector<std::string>{"image", "label"}));
  EXPECT_EQ(source->rows(), 6);
  expect_counted(*source, "image");
  ASSERT_NE(source->whole(0), nullptr);
  std::string notes;
  for (const std::string& note : source->notes()) notes += note + "\n";
  expect_contains(notes, {"array 'weights' is left out: it has 4 rows, others have 6", "array 'scalar' is left out: it is a scalar",
                          "array 'complex' is left out: dtype '<c8' is not supported"});
}

TEST(NpzFormat, ReadsOnlyWhatIsWanted) {
  const std::vector<WantedArray> wanted{{.name = "label", .input = false}};
  const auto source = open_spec(array_fixture("mixed.npz").string(), wanted);
  EXPECT_EQ(array_names(*source), (std::vector<std::string>{"label"}));
  EXPECT_TRUE(source->notes().empty());
  const std::vector<WantedArray> renamed{{.name = "x"}, {.name = "label", .input = false}};
  EXPECT_EQ(array_names(*open_spec(array_fixture("mixed.npz").string(), renamed)), (std::vector<std::string>{"image", "label"}));
}

TEST(NpzFormat, WantedArraysThatCannotBeRowsAreErrors) {
  const auto wanting = [](const char* name) {
    const std::vector<WantedArray> wanted{{.name = "image"}, {.name = name}};
    return error_of([&] { open_spec(array_fixture("mixed.npz").string(), wanted); });
  };
  expect_contains(wanting("scalar"), {"mixed.npz', array 'scalar': it is a scalar, wanted one row for each sample"});
  expect_contains(wanting("weights"), {"mixed.npz'", "array 'weights' has 4", "array 'image' has 6"});
  expect_contains(wanting("complex"), {"mixed.npz', array 'complex': dtype '<c8' is not supported"});
}

TEST(NpzFormat, RefusesWhatIsDamaged) {
  const TemporaryDirectory folder;
  const fs::path path = folder / "x.npz";
  const std::string whole = contents(array_fixture("mixed.npz"));
  put(path, whole.substr(0, whole.size() / 2));
  expect_refused(path.string(), {"x.npz'", "no zip archive, or truncated"});
  std::string flipped = whole;
  flipped[whole.find("image.npy") + 9 + 128 + 70] ^= 1;  // an element; libzip compares checksums
  put(path, flipped);
  expect_refused(path.string(), {"x.npz', array 'image': damaged"});
  runtime::write_npz(path, std::vector<NamedTensor>{{"x", Tensor(DType::f32, {0, 2})}});
  expect_refused(path.string(), {"x.npz' has no rows"});
  runtime::write_npz(path, std::vector<NamedTensor>{{"x", Tensor(DType::f32, Shape{})}});
  expect_refused(path.string(), {"x.npz': it is a scalar"});
}

}  // namespace
}  // namespace gcomp::data::test
