// CIFAR's binary files, computed by their definition: records of labels and 3072 bytes of pixels.
#include "tests/data/source_reading.h"

namespace gcomp::data::test {
namespace {

char pixel(int record, int i) { return static_cast<char>((record * 31 + i * 7 + i / 256) & 0xff); }

/// Records from `first` on, each with the labels that `labels` gives.
template <class Labels>
std::string records(int first, int count, const Labels& labels) {
  std::string bytes;
  for (int record = first; record < first + count; ++record) {
    bytes += labels(record);
    for (int i = 0; i < 3072; ++i) bytes += pixel(record, i);
  }
  return bytes;
}

std::string ten(int first, int count) {
  return records(first, count, [](int record) { return std::string(1, static_cast<char>(record % 10)); });
}
std::string hundred(int first, int count) {
  return records(first, count, [](int record) {
    return std::string{static_cast<char>(record % 20), static_cast<char>(record % 100)};
  });
}

void expect_pixels(const Source& source, std::int64_t row, int record) {
  const Tensor image = row_of(source, "image", row);
  ASSERT_EQ(to_string(image.type()), "u8[3,32,32]");
  for (int i = 0; i < 3072; ++i)
    ASSERT_EQ(image.bytes()[static_cast<std::size_t>(i)], std::byte(pixel(record, i))) << row << " " << i;
}

/// data_batch_3.bin to data_batch_5.bin, of one record each.
void put_other_batches(const TemporaryDirectory& folder) {
  for (const int batch : {3, 4, 5}) put(folder / concat("data_batch_", batch, ".bin"), ten(12 + batch, 1));
}

TEST(CifarFormat, ReadsTheFolderOfCifar10) {
  const TemporaryDirectory folder;
  put(folder / "data_batch_1.bin", ten(0, 12));
  put(folder / "data_batch_2.bin", ten(12, 3));
  put_other_batches(folder);
  put(folder / "test_batch.bin", ten(100, 2));
  put(folder / "batches.meta.txt",
      "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n");  // with its empty line
  const auto train = open_spec(folder.path().string());
  EXPECT_EQ(train->rows(), 18);
  EXPECT_EQ(array_names(*train), (std::vector<std::string>{"image", "label"}));
  for (const int row : {0, 11, 12, 14, 17}) {
    expect_pixels(*train, row, row);
    EXPECT_EQ(integers(*train, "label", row)[0], row % 10);
  }
  EXPECT_EQ(train->class_names(1).at(9), "truck");
  EXPECT_TRUE(train->class_names(0).empty());
  expect_contains(train->where(13), {"data_batch_2.bin', row 1"});
  EXPECT_EQ(train->whole(0), nullptr);
  const auto test = open_spec(folder.path().string() + ",part=test");
  EXPECT_EQ(test->rows(), 2);
  expect_pixels(*test, 1, 101);
  EXPECT_EQ(open_spec((folder / "data_batch_2.bin").string())->rows(), 3);
}

TEST(CifarFormat, ReadsTheFolderOfCifar100) {
  const TemporaryDirectory folder;
  std::string fine;
  for (int i = 0; i < 100; ++i) fine += "fine" + std::to_string(i) + "\n";
  put(folder / "train.bin", hundred(0, 120));
  put(folder / "test.bin", hundred(7, 3));
  put(folder / "fine_label_names.txt", fine);
  const auto train = open_spec(folder.path().string());
  EXPECT_EQ(array_names(*train), (std::vector<std::string>{"image", "label", "coarse_label"}));
  EXPECT_EQ(train->rows(), 120);
  expect_pixels(*train, 119, 119);
  EXPECT_EQ(integers(*train, "label", 119)[0], 19);
  EXPECT_EQ(integers(*train, "label", 99)[0], 99);
  EXPECT_EQ(integers(*train, "coarse_label", 119)[0], 119 % 20);
  EXPECT_EQ(train->class_names(1).at(99), "fine99");
  EXPECT_TRUE(train->class_names(2).empty());
  EXPECT_EQ(open_spec((folder / "test.bin").string())->rows(), 3);
}

TEST(CifarFormat, RefusesWhatIsDamaged) {
  const TemporaryDirectory folder;
  const fs::path path = folder / "x.bin";
  const std::string name = "cifar:" + path.string();
  put(path, ten(0, 2).substr(1));
  expect_refused(name, {"x.bin' has 6145 bytes, wanted records of 3073 or 3074"});
  expect_refused(name + ",classes=10", {"x.bin' has 6145 bytes, wanted records of 3073 for CIFAR-10"});
  put(path, "");
  expect_refused(name + ",classes=100", {"x.bin' has 0 bytes, wanted records of 3074"});
  put(path, records(0, 3, [](int record) { return std::string(1, record == 2 ? '\x0b' : '\1'); }));
  expect_refused(name, {"x.bin', record 2: label 11 of 10 classes"});
  put(path, records(0, 1, [](int) { return std::string{'\x14', '\1'}; }));
  expect_refused(name, {"x.bin', record 0: coarse_label 20 of 20 classes"});
  put(path, std::string(3073 * 3074, '\0'));
  expect_refused(name, {"may be of CIFAR-10 or of CIFAR-100: its size fits both; say classes=10 or classes=100"});
  EXPECT_EQ(open_spec(name + ",classes=100")->rows(), 3073);
  put(folder / "data_batch_1.bin", ten(0, 1));
  put_other_batches(folder);
  expect_refused(folder.path().string(),
                 {"has no 'data_batch_2.bin', only 'data_batch_1.bin', 'data_batch_3.bin'", "of the 5 files"});
  put(folder / "data_batch_2.bin", ten(0, 1));
  put(folder / "batches.meta.txt", "airplane\nautomobile\n");
  expect_refused(folder.path().string(), {"batches.meta.txt' names 2 classes, wanted 10"});
  expect_refused(folder.path().string() + ",part=test", {"has no files of part=test"});
}

TEST(CifarFormat, FileThatShrinksIsAnError) {
  const TemporaryDirectory folder;
  put(folder / "data_batch_1.bin", ten(0, 20));
  const auto source = open_spec((folder / "data_batch_1.bin").string());
  fs::resize_file(folder / "data_batch_1.bin", 3073 * 10 + 5);
  Tensor image(DType::u8, {3, 32, 32});
  source->fetch(0, 9, image.bytes());
  expect_contains(error_of([&] { source->fetch(0, 10, image.bytes()); }),
                  {"array 'image', row 10", "data_batch_1.bin'", "it has become shorter while it was read"});
}

}  // namespace
}  // namespace gcomp::data::test
