// MNIST's IDX, against files that torchvision reads alike, and MNIST's own.
#include "tests/data/source_reading.h"

namespace gcomp::data::test {
namespace {

std::string idx(int code, std::initializer_list<std::uint32_t> shape, const std::string& elements) {
  return std::string{'\0', '\0', static_cast<char>(code), static_cast<char>(shape.size())} + big_endian(shape) + elements;
}

TEST(IdxFormat, FindsImagesAndLabelsOfAFolder) {
  const auto train = open_spec(array_fixture("idx").string());
  EXPECT_EQ(array_names(*train), (std::vector<std::string>{"image", "label"}));
  EXPECT_EQ(train->rows(), 6);
  expect_counted(*train, "image");
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(integers(*train, "label", i), (std::vector<std::int64_t>{i}));
  const auto test = open_spec(array_fixture("idx").string() + ",part=test");
  EXPECT_EQ(test->rows(), 4);
  expect_counted(*test, "image");
  EXPECT_EQ(to_string(test->arrays()[0].second), "u8[3,2]");
  EXPECT_NE(test->whole(0), nullptr);  // rows of 6 bytes
  EXPECT_NE(test->whole(1), nullptr);
}

TEST(IdxFormat, FindsTheLabelsBesideAFile) {
  for (const char* name : {"idx/train-images-idx3-ubyte.gz", "idx/t10k-images-idx3-ubyte"}) {
    const auto source = open_spec(array_fixture(name).string());
    EXPECT_EQ(array_names(*source), (std::vector<std::string>{"image", "label"}));
    EXPECT_EQ(integers(*source, "label", 3), (std::vector<std::int64_t>{3}));
  }
  const std::string images = array_fixture("idx/t10k-images-idx3-ubyte").string();
  EXPECT_EQ(open_spec(images + ",labels=none")->arrays().size(), 1u);
  EXPECT_EQ(open_spec(images + ",labels='" + array_fixture("idx/t10k-labels-idx1-ubyte.gz").string() + "'")->arrays().size(), 2u);
  expect_refused(images + ",labels='" + array_fixture("idx/train-labels-idx1-ubyte").string() + "'",
                 {"t10k-images-idx3-ubyte' has 4 images, but", "train-labels-idx1-ubyte' has 6 labels"});
  expect_refused(images + ",part=test", {"part= chooses among the files of a folder"});
  EXPECT_EQ(array_names(*open_spec(array_fixture("idx/train-labels-idx1-ubyte").string())), (std::vector<std::string>{"label"}));
}

TEST(IdxFormat, ReadsEveryElementType) {
  for (const char* name : {"i2", "i4", "f4", "f8"}) {
    const auto source = open_spec(array_fixture(std::string("idx_types/") + name).string());
    EXPECT_EQ(source->rows(), 3);
    expect_counted(*source, "image");
  }
  const auto bytes = open_spec(array_fixture("idx_types/i1").string());
  EXPECT_EQ(integers(*bytes, "image", 2), (std::vector<std::int64_t>{200 - 256, 210 - 256}));
}

TEST(IdxFormat, ReadsMnist) {
  const auto folder = shared_data("mnist");
  if (!folder) GTEST_SKIP() << "no shared/data/mnist found (set GCOMP_SHARED): MNIST's own file is not read";
  const auto source = open_spec(folder->string());
  EXPECT_EQ(source->rows(), 10'000);
  EXPECT_EQ(to_string(source->arrays()[0].second), "u8[28,28]");
  std::vector<int> counts(10);
  for (std::int64_t i = 0; i < source->rows(); ++i) ++counts[static_cast<std::size_t>(integers(*source, "label", i)[0])];
  // How often each digit is in the test file, as everybody counts them.
  EXPECT_EQ(counts, (std::vector<int>{980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009}));
  EXPECT_EQ(integers(*source, "label", 0)[0], 7);
}

TEST(IdxFormat, ExplainsWhichFilesItTakes) {
  const TemporaryDirectory folder;
  const std::string images = idx(8, {2, 1, 1}, "ab"), name = "idx:" + folder.path().string();
  expect_refused(name, {"has no images such as train-images-idx3-ubyte"});
  put(folder / "t10k-images-idx3-ubyte", images);
  const auto source = open_spec(folder.path().string());
  ASSERT_EQ(source->notes().size(), 2u);
  expect_contains(source->notes()[0], {"has one file of images, t10k-images-idx3-ubyte, which is read"});
  expect_contains(source->notes()[1], {"no labels were found beside", "labels=FILE"});
  expect_refused(name + ",part=train", {"no images of part=train, it has 't10k-images-idx3-ubyte'"});
  put(folder / "a-train-images-idx3-ubyte", images);
  put(folder / "b-train-images-idx3-ubyte", images);
  expect_refused(name, {"several images of part=train: 'a-train-images-idx3-ubyte' and 'b-train-images-idx3-ubyte'"});
}

TEST(IdxFormat, TakesTheUnpackedOfTwo) {
  const TemporaryDirectory folder;  // as torchvision leaves them
  put(folder / "train-images-idx3-ubyte", idx(8, {2, 1, 1}, "ab"));
  put(folder / "train-images-idx3-ubyte.gz", "not even read");
  put(folder / "train-labels-idx1-ubyte", idx(8, {2}, "cd"));
  EXPECT_EQ(open_spec(folder.path().string())->rows(), 2);
}

TEST(IdxFormat, RefusesWhatIsDamaged) {
  const TemporaryDirectory folder;
  const fs::path path = folder / "x-idx3-ubyte";
  const std::string name = "idx:" + path.string();
  const auto refused = [&](const std::string& bytes, std::initializer_list<const char*> parts) {
    put(path, bytes);
    expect_refused(name, parts);
  };
  refused(idx(8, {2, 2, 2}, "1234567"), {"x-idx3-ubyte': it has 7 bytes of elements, wanted 8 for u8[2,2,2]"});
  refused(idx(8, {2, 2, 2}, "123456789"), {"it has 9 bytes of elements, wanted 8"});
  refused(idx(7, {2}, "12"), {"x-idx3-ubyte': no IDX file"});
  refused(idx(8, {}, ""), {"it has 0 dimensions, wanted 1 to 32"});
  refused(std::string("\0\0\x08\xff", 4) + std::string(2000, '\1'), {"it has 255 dimensions"});
  refused(idx(8, {0, 2}, ""), {"it has no elements"});
  refused(idx(14, {~0u, ~0u, ~0u, ~0u}, "12"), {"x-idx3-ubyte'", "elements"});
  refused(idx(8, {2, 2}, "1234").substr(0, 9), {"x-idx3-ubyte'", "bytes are missing"});
  refused("", {"x-idx3-ubyte'", "4 bytes are missing"});
}

TEST(IdxFormat, RefusesDamagedGzipAndBombs) {
  const TemporaryDirectory folder;
  const fs::path path = folder / "x.gz";
  const std::string name = "idx:" + path.string();
  const std::string whole = contents(array_fixture("idx/train-images-idx3-ubyte.gz"));
  const auto refused = [&](const std::string& bytes, std::initializer_list<const char*> parts) {
    put(path, bytes);
    expect_refused(name, parts);
  };
  refused(whole.substr(0, whole.size() - 1), {"x.gz': truncated gzip"});
  refused(whole.substr(0, 20), {"x.gz': truncated gzip"});
  refused(whole + "!", {"x.gz'", "gzip"});
  std::string wrong_sum = whole;
  wrong_sum[whole.size() - 8] ^= 1;
  refused(wrong_sum, {"x.gz': damaged gzip: incorrect data check"});
  refused(whole + whole, {"x.gz': inflates to more bytes than it should"});  // two members count as one
  // 255 x 2^24 x 2^24 bytes are claimed by a stored block of 16.
  const std::string header = idx(8, {255, 1 << 24, 1 << 24}, "");
  std::string bomb("\x1f\x8b\x08\0\0\0\0\0\0\3\1", 11);
  bomb += bytes_of<std::uint16_t>({static_cast<std::uint16_t>(header.size()), static_cast<std::uint16_t>(~header.size())}) + header;
  refused(bomb, {"x.gz'", "elements"});
  const std::string large = idx(8, {1 << 20, 1 << 20}, "");
  bomb.resize(11);
  bomb += bytes_of<std::uint16_t>({static_cast<std::uint16_t>(large.size()), static_cast<std::uint16_t>(~large.size())}) + large;
  refused(bomb, {"x.gz': it claims u8[1048576,1048576], which", "bytes of gzip cannot hold"});
}

}  // namespace
}  // namespace gcomp::data::test
