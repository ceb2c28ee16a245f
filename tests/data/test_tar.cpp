// Tar archives: samples, folders in their folder's order, and archives that are refused.
#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "data/format.h"
#include "data/path_range.h"
#include "tests/data/image_fixtures.h"
#include "tests/temporary_directory.h"

namespace gcomp::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTarFixtures = GCOMP_SOURCE_DIR "/tests/fixtures/data/";

std::unique_ptr<Source> open_tar_spec(const std::string& spec) { return open(parse_spec(spec)); }

template <class T>
std::vector<T> row_of(const Source& source, std::size_t array, std::int64_t row, std::size_t count) {
  std::vector<T> values(count);
  source.fetch(array, row, std::as_writable_bytes(std::span(values)));
  return values;
}

struct TarEntry {
  std::string name, data = "";
  mode_t type = AE_IFREG;
  std::string link = "";
  bool hard = false;
};

void write_tar(const fs::path& path, const std::vector<TarEntry>& entries) {
  archive* out = archive_write_new();
  archive_write_set_format_gnutar(out);
  ASSERT_EQ(archive_write_open_filename(out, path.c_str()), ARCHIVE_OK);
  for (const TarEntry& entry : entries) {
    archive_entry* header = archive_entry_new();
    archive_entry_set_pathname(header, entry.name.c_str());
    archive_entry_set_filetype(header, entry.type);
    archive_entry_set_perm(header, 0644);
    archive_entry_set_size(header, static_cast<la_int64_t>(entry.data.size()));
    if (entry.hard) archive_entry_set_hardlink(header, entry.link.c_str());
    else if (!entry.link.empty()) archive_entry_set_symlink(header, entry.link.c_str());
    ASSERT_EQ(archive_write_header(out, header), ARCHIVE_OK) << archive_error_string(out);
    archive_write_data(out, entry.data.data(), entry.data.size());
    archive_entry_free(header);
  }
  archive_write_close(out);
  archive_write_free(out);
}

std::string text_of(const std::string& fixture) {
  const std::vector<std::byte> bytes = fixture_image(fixture);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Tar, SamplesAreRowsInTheArchivesOrder) {
  const std::unique_ptr<Source> source = open_tar_spec(std::string(kTarFixtures) + "samples.tar");
  ASSERT_EQ(source->rows(), 2);
  EXPECT_EQ(source->arrays(), (std::vector<NamedType>{
                                  {"label", {DType::i64, {}}}, {"image", {DType::u8, {-1, -1, -1}}}, {"box", {DType::f32, {4}}}}));
  EXPECT_EQ(row_of<std::int64_t>(*source, 0, 0, 1)[0], 7);
  EXPECT_EQ(row_of<std::int64_t>(*source, 0, 1, 1)[0], 3);
  EXPECT_EQ(row_of<float>(*source, 2, 1, 4), (std::vector<float>{3, 4, 5, 6}));
  Image image, wanted;
  const std::vector<NamedTensor> arrays = fixture_arrays("images.npz");
  source->images(1)->decode(0, 3, std::nullopt, image);
  EXPECT_EQ(difference(image, image_of(array_of(arrays, "jpeg_cmyk.rgb"))), "");
  source->images(1)->decode(1, 3, std::nullopt, image);
  EXPECT_EQ(difference(image, image_of(array_of(arrays, "jpeg_turned.rgb"))), "");
  EXPECT_NE(source->where(1).find("samples.tar', entry 'train/0001.cls'"), std::string::npos);
  ASSERT_EQ(source->notes().size(), 1U);
  EXPECT_NE(source->notes()[0].find("2 entries of kind 'json' were left out"), std::string::npos);
}

TEST(Tar, FoldersHaveTheOrderOfTheFolder) {
  const std::unique_ptr<Source> source = open_tar_spec(std::string(kTarFixtures) + "folders.tar");
  std::vector<std::string> rows;
  for (std::int64_t row = 0; row < source->rows(); ++row) {
    const std::string where = source->where(row);
    rows.push_back(where.substr(where.find("photos/") + 7) + std::to_string(row_of<std::int64_t>(*source, 1, row, 1)[0]));
  }
  EXPECT_EQ(rows, (std::vector<std::string>{"cat/10.PNG'0", "cat/9.png'0", "cat/b/1.png'0", "cat/b-1/1.png'0", "dog/2.png'1"}));
  EXPECT_EQ(source->class_names(1), (std::vector<std::string>{"cat", "dog"}));
}

TEST(Tar, AFolderAndItsArchiveGiveTheSameRows) {
  const test::TemporaryDirectory scratch;
  const std::vector<std::string> names{"b/2.png", "b/10.png", "a/x/1.png", "a/x-y/1.png", "a/1.png", "a-/1.png"};
  std::vector<TarEntry> entries;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string data = text_of(i % 2 == 0 ? "png_2_8" : "png_0_8");
    entries.push_back({.name = names[i], .data = data});
    fs::create_directories((scratch.path() / "folder" / names[i]).parent_path());
    test::put(scratch.path() / "folder" / names[i], data);
  }
  write_tar(scratch / "all.tar", entries);
  const std::unique_ptr<Source> tar = open_tar_spec((scratch / "all.tar").string()),
                                folder = open_tar_spec((scratch / "folder").string());
  ASSERT_EQ(tar->rows(), folder->rows());
  EXPECT_EQ(tar->arrays(), folder->arrays());
  EXPECT_EQ(tar->class_names(1), folder->class_names(1));
  for (std::int64_t row = 0; row < tar->rows(); ++row) {
    Image a, b;
    tar->images(0)->decode(row, 3, std::nullopt, a), folder->images(0)->decode(row, 3, std::nullopt, b);
    EXPECT_EQ(difference(a, b), "") << row;
    EXPECT_EQ(row_of<std::int64_t>(*tar, 1, row, 1), row_of<std::int64_t>(*folder, 1, row, 1));
    const std::string where = folder->where(row);
    EXPECT_NE(tar->where(row).find(where.substr(where.find("folder/") + 7)), std::string::npos) << where;
  }
}

TEST(Tar, LongAndForeignNamesAreRead) {
  const std::unique_ptr<Source> source = open_tar_spec(std::string(kTarFixtures) + "names.tar");
  EXPECT_EQ(source->class_names(1), (std::vector<std::string>{"gr\xC3\xB6\xC3\x9F"
                                                              "e",
                                                              "n"}));
  EXPECT_EQ(source->images(0)->size(1), (ImageSize{9, 13}));
}

TEST(Tar, SeveralShardsAreOneSource) {
  const test::TemporaryDirectory scratch;
  for (int shard = 8; shard < 11; ++shard)
    write_tar(scratch / ((shard < 10 ? "s-0" : "s-") + std::to_string(shard) + ".tar"),
              {{.name = "0.png", .data = text_of("png_2_8")}, {.name = "0.cls", .data = " " + std::to_string(shard) + "\n"}});
  for (const std::string& spec : {(scratch / "s-{08..10}.tar").string(), scratch.path().string(),
                                  "tar:" + (scratch / "s-{08..10}.tar").string() + ",max_pixels=200"}) {
    const std::unique_ptr<Source> source = open_tar_spec(spec);
    ASSERT_EQ(source->rows(), 3) << spec;
    for (std::int64_t row = 0; row < 3; ++row) EXPECT_EQ(row_of<std::int64_t>(*source, 1, row, 1)[0], 8 + row);
  }
  EXPECT_NE(error_of([&] { open_tar_spec((scratch / "s-{08..11}.tar").string()); }).find("s-11.tar"), std::string::npos);
  EXPECT_NE(error_of([&] { open_tar_spec((scratch / "s-{07..11}.tar").string()); }).find("s-07.tar' does not exist"),
            std::string::npos);
  EXPECT_NE(error_of([&] { expand_range("s-{9..1}.tar"); }).find("backwards"), std::string::npos);
  EXPECT_EQ(expand_range("s-{a..b}.tar").size(), 1U);
}

TEST(Tar, WhatCouldDoHarmIsRefusedByName) {
  const test::TemporaryDirectory scratch;
  const fs::path path = scratch / "bad.tar";
  const std::string png = text_of("png_2_8");
  const auto error = [&](const TarEntry& entry) {
    write_tar(path, {{.name = "a/1.png", .data = png}, entry});
    return error_of([&] { open_tar_spec("tar:" + path.string()); });
  };
  EXPECT_EQ(error({.name = "a/2.png", .data = png}), "");
  const std::string where = "'" + path.string() + "', entry '";
  EXPECT_EQ(error({.name = "/etc/1.png", .data = png}), where + "/etc/1.png': its path is absolute");
  EXPECT_EQ(error({.name = "a/../../1.png", .data = png}), where + "a/../../1.png': its path has '..'");
  EXPECT_EQ(error({.name = "..", .type = AE_IFDIR}).find(where + ".."), 0U);
  EXPECT_EQ(error({.name = "a/2.png", .type = AE_IFLNK, .link = "/etc/passwd"}).find(where + "a/2.png': is a link"), 0U);
  EXPECT_EQ(error({.name = "a/2.png", .link = "a/1.png", .hard = true}).find(where + "a/2.png': is a link"), 0U);
  EXPECT_EQ(error({.name = "a/2.png", .type = AE_IFCHR}), where + "a/2.png': is neither a file nor a folder");
  EXPECT_EQ(error({.name = "a/2.png", .type = AE_IFIFO}), where + "a/2.png': is neither a file nor a folder");
  EXPECT_EQ(error({.name = "a/1.png", .data = png}), where + "a/1.png': comes twice in the archive");
  EXPECT_EQ(error({.name = "./a/1.png", .data = png}), where + "./a/1.png': comes twice in the archive");
}

TEST(Tar, AnArchiveThatIsCutOffIsRefused) {
  const test::TemporaryDirectory scratch;
  const std::string bytes = test::contents(std::string(kTarFixtures) + "samples.tar");
  const fs::path path = scratch / "cut.tar";
  std::size_t opened = 0;
  for (std::size_t size = 0; size < 7 * 512; size += 100) {
    test::put(path, std::string_view(bytes).substr(0, size));
    const std::string error = error_of([&] { open_tar_spec("tar:" + path.string()); });
    opened += error.empty() ? 1 : 0;
    EXPECT_TRUE(error.empty() || error.find("cut.tar'") != error.npos) << error;
  }
  EXPECT_EQ(opened, 0U);
  test::put(path, bytes);
  const std::unique_ptr<Source> source = open_tar_spec(path.string());
  fs::resize_file(path, 600);
  Image image;
  const std::string error = error_of([&] { source->images(1)->decode(0, 3, std::nullopt, image); });
  EXPECT_NE(error.find("cut.tar', entry 'train/0002.jpg': '"), error.npos) << error;
  EXPECT_NE(error.find("it has become shorter while it was read"), error.npos) << error;
}

TEST(Tar, ACompressedArchiveIsRefusedWithTheCure) {
  const test::TemporaryDirectory scratch;
  test::put(scratch / "a.tar.gz", "\x1F\x8B\x08 and so on");
  EXPECT_NE(error_of([&] { open_tar_spec((scratch / "a.tar.gz").string()); }).find("decompress it first, with gunzip"),
            std::string::npos);
}

TEST(Tar, SamplesThatDifferAreRefused) {
  const test::TemporaryDirectory scratch;
  const fs::path path = scratch / "bad.tar";
  const std::string png = text_of("png_2_8");
  const auto error = [&](const std::vector<TarEntry>& entries) {
    write_tar(path, entries);
    return error_of([&] {
      const std::unique_ptr<Source> source = open_tar_spec("tar:" + path.string() + ",layout=samples");
      for (std::size_t array = 0; array < source->arrays().size(); ++array)
        if (!source->images(array)) row_of<std::int64_t>(*source, array, source->rows() - 1, 1);
    });
  };
  EXPECT_EQ(error({{"1.png", png}, {"1.cls", "2"}, {"2.png", png}, {"2.cls", "-4"}}), "");
  EXPECT_NE(error({{"1.png", png}, {"1.cls", "2"}, {"2.png", png}}).find("sample '2' has no 'label'"), std::string::npos);
  EXPECT_NE(error({{"1.png", png}, {"2.png", png}, {"2.cls", "2"}}).find("the samples before it have no 'label'"),
            std::string::npos);
  EXPECT_NE(error({{"1.png", png}, {"1.jpg", png}}).find("the sample has 'image' twice"), std::string::npos);
  EXPECT_NE(error({{"1.png", png}, {"2.png", png}, {"1.jpg", png}}).find("sample '1' comes again"), std::string::npos);
  EXPECT_NE(error({{"1.png", png}, {"1.cls", "cat"}}).find("entry '1.cls': 'cat' is no whole number"), std::string::npos);
  EXPECT_NE(error({{"1.npy", "no array"}}).find("entry '1.npy': "), std::string::npos);
  EXPECT_NE(error({{"1.txt", "no array"}}).find("holds no samples"), std::string::npos);
}

}  // namespace
}  // namespace gcomp::data
