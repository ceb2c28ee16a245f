// gcomp's own file of images: what is written reads back, and damage is found.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "data/format.h"
#include "data/images/jpeg.h"
#include "data/images/shard.h"
#include "tests/data/image_fixtures.h"
#include "tests/temporary_directory.h"

namespace gcomp::data {
namespace {

namespace fs = std::filesystem;

void write_shard(const fs::path& path) {
  ShardWriter writer(path, {.classes = {"cat", "dog"}});
  writer.add(test_picture(20, 30, 3), 1);
  writer.add(test_picture(7, 5, 1), 0);
  writer.add(fixture_image("jpeg_420"), 1);
  writer.add(fixture_image("png_0_8"), 0);
  EXPECT_EQ(writer.rows(), 4);
  writer.commit();
}

std::unique_ptr<Source> open_shard_at(const fs::path& path) { return open(parse_spec(path.string())); }

TEST(Shard, WhatIsWrittenReadsBack) {
  const test::TemporaryDirectory folder;
  write_shard(folder / "a.shard");
  const DataSpec spec = parse_spec((folder / "a.shard").string());
  EXPECT_EQ(spec.format->definition.name, "shard");
  const std::unique_ptr<Source> source = open(spec);
  ASSERT_EQ(source->rows(), 4);
  EXPECT_EQ(source->class_names(1), (std::vector<std::string>{"cat", "dog"}));
  const std::vector<NamedTensor> arrays = fixture_arrays("images.npz");
  const Image wanted[] = {test_picture(20, 30, 3), test_picture(7, 5, 1), image_of(array_of(arrays, "jpeg_420.rgb")),
                          image_of(array_of(arrays, "png_0_8.l"))};
  Image image;
  for (std::int64_t row = 0; row < 4; ++row) {
    const Image& all = wanted[row];
    const ImageSource& images = *source->images(0);
    EXPECT_EQ(images.size(row), (ImageSize{all.height, all.width}));
    ASSERT_EQ(images.channels(row), all.channels);
    images.decode(row, all.channels, std::nullopt, image);
    EXPECT_EQ(difference(image, all), "") << row;
    const Box box{.top = 2, .left = 1, .height = 4, .width = 3};
    images.decode(row, all.channels, box, image);
    EXPECT_EQ(difference(image, cut(all, box)), "") << row;
    images.decode(row, 4 - all.channels, box, image);
    EXPECT_EQ(image.channels, 4 - all.channels);
    std::int64_t label = -1;
    source->fetch(1, row, std::as_writable_bytes(std::span(&label, 1)));
    EXPECT_EQ(label, row % 2 == 0 ? 1 : 0);
  }
  EXPECT_NE(error_of([&] { source->images(0)->decode(1, 1, Box{.top = 4, .left = 0, .height = 4, .width = 3}, image); }), "");
}

TEST(Shard, EveryByteOfHeadAndIndexCounts) {
  const test::TemporaryDirectory folder;
  write_shard(folder / "a.shard");
  const std::string bytes = test::contents(folder / "a.shard");
  const std::size_t index = bytes.size() - 64 - 14 - 4 * 40;  // end, class names, rows
  const auto error = [&](std::string_view damaged) {
    test::put(folder / "b.shard", damaged);
    return error_of([&] { open(parse_spec("shard:" + (folder / "b.shard").string())); });
  };
  EXPECT_EQ(error(bytes), "");
  for (std::size_t at = 0; at < bytes.size(); at += at + 1 == 16 ? index - 15 : 1) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    EXPECT_NE(error(damaged).find("b.shard'"), std::string::npos) << "byte " << at;
  }
  for (std::size_t size = 0; size < bytes.size(); size += 7) EXPECT_NE(error(std::string_view(bytes).substr(0, size)), "") << size;
  EXPECT_NE(error(bytes + "x").find("is cut off"), std::string::npos);
}

TEST(Shard, AFileThatBecomesShorterIsSaid) {
  const test::TemporaryDirectory folder;
  write_shard(folder / "a.shard");
  const std::unique_ptr<Source> source = open_shard_at(folder / "a.shard");
  fs::resize_file(folder / "a.shard", 100);
  Image image;
  for (std::int64_t row = 0; row < 4; ++row)
    EXPECT_NE(
        error_of([&] { source->images(0)->decode(row, 3, std::nullopt, image); }).find("a.shard', row " + std::to_string(row)),
        std::string::npos);
}

TEST(Shard, WhatDoesNotFitIsRefused) {
  const test::TemporaryDirectory folder;
  {
    ShardWriter writer(folder / "a.shard", {.classes = {"cat"}});
    EXPECT_NE(error_of([&] { writer.commit(); }).find("no rows"), std::string::npos);
    EXPECT_NE(error_of([&] { writer.add(test_picture(3, 3, 3), 1); }).find("label 1, but there are 1 classes"), std::string::npos);
    writer.add(test_picture(3, 3, 3), 0);
    EXPECT_NE(error_of([&] { writer.add(test_picture(3, 3, 3), std::nullopt); }).find("row 1: has no label"), std::string::npos);
    EXPECT_NE(error_of([&] { writer.add(std::span<const std::byte>(), 0); }), "");
  }
  EXPECT_EQ(folder.files(), 0) << "without commit() nothing stays";
}

}  // namespace
}  // namespace gcomp::data
