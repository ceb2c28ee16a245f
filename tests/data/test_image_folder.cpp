// Folders of images: rows and classes in torchvision's order, by bytes, and what is wrong with a folder.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "data/format.h"
#include "data/transforms/transformed.h"
#include "tests/data/image_fixtures.h"
#include "tests/temporary_directory.h"

namespace gcomp::data {
namespace {

namespace fs = std::filesystem;

void put_image(const fs::path& path, const std::string& fixture = "png_2_8") {
  fs::create_directories(path.parent_path());
  const std::vector<std::byte> bytes = fixture_image(fixture);
  test::put(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::unique_ptr<Source> open_spec(const std::string& spec, std::span<const WantedArray> wanted = {}) {
  return open(parse_spec(spec), wanted);
}

std::int64_t label_of(const Source& source, std::int64_t row) {
  std::int64_t label = -1;
  source.fetch(1, row, std::as_writable_bytes(std::span(&label, 1)));
  return label;
}

/// Paths of the rows below the folder, with their labels.
std::vector<std::string> rows_of(const Source& source, const fs::path& folder) {
  std::vector<std::string> rows;
  for (std::int64_t row = 0; row < source.rows(); ++row) {
    const std::string where = source.where(row);
    rows.push_back(where.substr(folder.string().size() + 2, where.size() - folder.string().size() - 3) + " " +
                   std::to_string(label_of(source, row)));
  }
  return rows;
}

TEST(ImageFolder, RowsAreSortedByBytesAsImageFolderWalks) {
  const test::TemporaryDirectory folder;
  for (const char* name : {"dog/2.png", "dog/10.png", "Dog/1.PNG", "a-b/1.png", "a/z.png", "a/b/1.png", "a/b/c/1.png",
                           "a/b-1/1.png", "\xC3\xA9/1.png"})
    put_image(folder.path() / name);
  put_image(folder.path() / "dog" / "3.JPEG", "jpeg_grey");
  put_image(folder.path() / "a" / ".hidden.png");
  put_image(folder.path() / ".checkpoints" / "1.png");
  put_image(folder.path() / "loose.png");
  test::put(folder.path() / "dog" / "notes.txt", "x");
  const std::unique_ptr<Source> source = open_spec(folder.path().string());
  EXPECT_EQ(rows_of(*source, folder.path()),
            (std::vector<std::string>{"Dog/1.PNG 0", "a/z.png 1", "a/b/1.png 1", "a/b-1/1.png 1", "a/b/c/1.png 1", "a-b/1.png 2",
                                      "dog/10.png 3", "dog/2.png 3", "dog/3.JPEG 3", "\xC3\xA9/1.png 4"}));
  EXPECT_EQ(source->class_names(1), (std::vector<std::string>{"Dog", "a", "a-b", "dog", "\xC3\xA9"}));
  EXPECT_EQ(source->arrays(), (std::vector<NamedType>{{"image", {DType::u8, {-1, -1, -1}}}, {"label", {DType::i64, {}}}}));
  ASSERT_EQ(source->notes().size(), 2U);
  EXPECT_NE(source->notes()[0].find("1 images beside the class folders"), std::string::npos);
  EXPECT_NE(source->notes()[1].find("1 file was left out"), std::string::npos) << source->notes()[1];
  const ImageSource* images = source->images(0);
  EXPECT_EQ(images->size(8), (ImageSize{33, 43}));
  EXPECT_EQ(images->channels(8), 1);
  EXPECT_EQ(images->channels(0), 3);
  EXPECT_EQ(source->images(1), nullptr);
}

TEST(ImageFolder, WithoutClassesThereAreNoLabels) {
  const test::TemporaryDirectory folder;
  put_image(folder / "2.png"), put_image(folder / "1.png");
  const std::unique_ptr<Source> source = open_spec("images:" + folder.path().string());
  EXPECT_EQ(source->rows(), 2);
  EXPECT_EQ(source->arrays().size(), 1U);
  const WantedArray label{.name = "label", .input = false};
  EXPECT_NE(error_of([&] {
              open_spec("images:" + folder.path().string(), {&label, 1});
            }).find("no class folders"),
            std::string::npos);
}

TEST(ImageFolder, LabelsCanBeLeftOut) {
  const test::TemporaryDirectory folder;
  put_image(folder.path() / "a" / "1.png");
  EXPECT_EQ(open_spec("images:" + folder.path().string() + ",label=none")->arrays().size(), 1U);
}

TEST(ImageFolder, AnEmptyClassFolderIsNamed) {
  const test::TemporaryDirectory folder;
  put_image(folder.path() / "a" / "1.png");
  fs::create_directory(folder.path() / "empty");
  EXPECT_NE(error_of([&] { open_spec(folder.path().string()); }).find("/empty': the class folder has no images"),
            std::string::npos);
}

TEST(ImageFolder, AnImageThatCannotBeReadIsNamed) {
  const test::TemporaryDirectory folder;
  put_image(folder.path() / "a" / "1.png");
  test::put(folder.path() / "a" / "2.png", "no image");
  fs::create_symlink("nowhere", folder.path() / "a" / "3.png");
  fs::create_directory(folder.path() / "a" / "4.png");
  const std::unique_ptr<Source> source = open_spec("images:" + folder.path().string());
  ASSERT_EQ(source->rows(), 3);
  Image image;
  const auto error = [&](std::int64_t row) { return error_of([&] { source->images(0)->decode(row, 3, std::nullopt, image); }); };
  EXPECT_EQ(error(0), "");
  EXPECT_NE(error(1).find("/a/2.png': neither JPEG nor PNG"), std::string::npos) << error(1);
  EXPECT_NE(error(2).find("/a/3.png': No such file"), std::string::npos) << error(2);
  fs::remove(folder.path() / "a" / "1.png");
  EXPECT_EQ(error(0).find("a/1.png': neither"), std::string::npos);
  EXPECT_NE(error(0).find("/a/1.png': No such file"), std::string::npos) << error(0);
}

TEST(ImageFolder, LinksAreFollowedButNotInCircles) {
  const test::TemporaryDirectory folder, elsewhere;
  put_image(elsewhere.path() / "deep" / "1.png");
  put_image(folder.path() / "a" / "1.png");
  fs::create_directory_symlink(elsewhere.path(), folder.path() / "b");
  EXPECT_EQ(rows_of(*open_spec(folder.path().string()), folder.path()), (std::vector<std::string>{"a/1.png 0", "b/deep/1.png 1"}));
  fs::create_directory_symlink(folder.path(), folder.path() / "a" / "back");
  EXPECT_NE(error_of([&] { open_spec(folder.path().string()); }).find("/a/back': a symbolic link leads back"), std::string::npos);
}

/// Of images of one size without a transform, each is looked at when they are opened.
TEST(ImageFolder, WhatCannotBeReadIsAnErrorWhenItsRowIs) {
  const test::TemporaryDirectory folder;
  for (const char* name : {"a/1.png", "a/2.png", "b/1.png"}) put_image(folder.path() / name);
  test::put(folder.path() / "a" / "0.png", "hello");
  test::put(folder.path() / "b" / "0zz.png", "hello");
  const std::vector<WantedArray> wanted{{.name = "image", .dtype = DType::f32, .row = Shape{-1, -1, -1}}};
  const auto rows = transformed(open_spec(folder.path().string()), {}, wanted);
  const TensorType type = rows->arrays()[0].second;
  EXPECT_EQ(type, (TensorType{DType::u8, {3, 9, 13}}));
  std::vector<std::byte> bytes(static_cast<std::size_t>(type.bytes()));
  for (const std::int64_t row : {1, 2, 4}) EXPECT_EQ(error_of([&] { rows->fetch(0, row, bytes); }), "") << row;
  EXPECT_NE(error_of([&] { rows->fetch(0, 0, bytes); }).find("/a/0.png': "), std::string::npos);
  EXPECT_NE(error_of([&] { rows->fetch(0, 3, bytes); }).find("/b/0zz.png': "), std::string::npos);
}

TEST(ImageFolder, WithoutAnImageThatCanBeReadSaysWhatIsWrong) {
  const test::TemporaryDirectory folder;
  fs::create_directories(folder.path() / "a");
  test::put(folder.path() / "a" / "0.png", "hello");
  EXPECT_NE(error_of([&] { transformed(open_spec(folder.path().string()), {}, {}); }).find("/a/0.png': "), std::string::npos);
}

TEST(ImageFolder, PixelsAreCapped) {
  const test::TemporaryDirectory folder;
  put_image(folder.path() / "a" / "1.png");
  const std::unique_ptr<Source> source = open_spec("images:" + folder.path().string() + ",max_pixels=100");
  EXPECT_NE(error_of([&] { source->images(0)->size(0); }).find("/a/1.png': an image of 13 x 9 pixels, more than the 100"),
            std::string::npos);
}

TEST(ImageFolder, AFolderWithoutImagesIsNone) {
  const test::TemporaryDirectory folder;
  EXPECT_NE(error_of([&] { open_spec("images:" + folder.path().string()); }).find("holds no images"), std::string::npos);
  test::put(folder / "file", "x");
  EXPECT_NE(error_of([&] { open_spec("images:" + (folder / "file").string()); }).find("is no folder"), std::string::npos);
}

}  // namespace
}  // namespace gcomp::data
