// .npz archives as sources.
#include <algorithm>

#include "runtime/files/npz.h"
#include "runtime/files/zip_directory.h"
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

runtime::ReadBytesAt reader_of(const std::string& bytes) {
  return [&bytes](std::uint64_t offset, std::span<std::byte> to) {
    ASSERT_LE(offset + to.size(), bytes.size());  // whatever the archive says
    std::copy_n(bytes.data() + offset, to.size(), reinterpret_cast<char*>(to.data()));
  };
}

TEST(ZipDirectory, IsWhatLibzipReads) {
  for (const fs::path& path : {array_fixture("mixed.npz"), fs::path(GCOMP_SOURCE_DIR) / "tests/fixtures/npz/numpy_stored.npz"}) {
    const std::string bytes = contents(path);
    const runtime::ReadBytesAt read = reader_of(bytes);
    const runtime::ZipReader archive(path);
    const std::vector<runtime::ZipPlace> places = runtime::read_zip_directory(bytes.size(), read);
    ASSERT_EQ(places.size(), archive.entries().size());
    for (std::size_t i = 0; i < places.size(); ++i) {
      EXPECT_EQ(places[i].name, archive.entries()[i].name);
      EXPECT_TRUE(places[i].stored);
      const std::vector<std::byte> entry = archive.read(i);
      ASSERT_EQ(places[i].bytes, entry.size());
      EXPECT_EQ(std::memcmp(bytes.data() + runtime::begin_of(places[i], bytes.size(), read), entry.data(), entry.size()), 0);
    }
  }
}

TEST(ZipDirectory, NeverReadsOutsideOfADamagedArchive) {
  const std::string whole = contents(array_fixture("mixed.npz"));
  const auto read_all = [](const std::string& bytes) {
    try {
      const runtime::ReadBytesAt read = reader_of(bytes);
      for (const runtime::ZipPlace& place : runtime::read_zip_directory(bytes.size(), read))
        EXPECT_LE(runtime::begin_of(place, bytes.size(), read) + place.bytes, bytes.size());
    } catch (const UserError&) {}  // right too
  };
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char value : {'\0', '\x7f', '\xff'}) {
      std::string damaged = whole;
      damaged[at] = value;
      read_all(damaged);
    }
    read_all(whole.substr(0, at));
    read_all(whole.substr(at));
    std::string in64 = whole;
    in64.replace(at, std::min<std::size_t>(4, whole.size() - at), "\xff\xff\xff\xff");
    read_all(in64);
  }
}

/// A record of an archive: numbers with their widths in bytes.
std::string record(std::initializer_list<std::pair<std::uint64_t, int>> fields) {
  std::string bytes;
  for (const auto& [value, width] : fields)
    for (int i = 0; i < width; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

/// An archive with x, u8 zeros, as long as they are and without any block on the disk. ZIP64's fields are used from 4 GiB on, as
/// APPNOTE 4.5.3 has them.
void write_sparse_archive(const fs::path& path, const TensorType& type) {
  const std::string header = runtime::npy_header(type);
  const std::uint64_t bytes = header.size() + static_cast<std::uint64_t>(type.bytes()), in64 = 0xffffffff;
  const bool large = bytes >= in64;
  const std::uint64_t shown = large ? in64 : bytes, version = large ? 45 : 20, extra = large ? 20 : 0;
  const std::string sizes = large ? record({{1, 2}, {16, 2}, {bytes, 8}, {bytes, 8}}) : "";
  const std::string fields =
      record({{version, 2}, {0, 2}, {0, 2}, {0, 2}, {33, 2}, {0, 4}, {shown, 4}, {shown, 4}, {5, 2}, {extra, 2}});
  const std::string local = record({{0x04034b50, 4}}) + fields + "x.npy" + sizes;
  const std::uint64_t directory = local.size() + bytes;
  std::string end =
      record({{0x02014b50, 4}, {version, 2}}) + fields + record({{0, 2}, {0, 2}, {0, 2}, {0, 4}, {0, 4}}) + "x.npy" + sizes;
  const std::uint64_t length = end.size();
  if (large) {
    end += record({{0x06064b50, 4}, {44, 8}, {45, 2}, {45, 2}, {0, 4}, {0, 4}, {1, 8}, {1, 8}, {length, 8}, {directory, 8}});
    end += record({{0x07064b50, 4}, {0, 4}, {directory + length, 8}, {1, 4}});
  }
  end += record({{0x06054b50, 4}, {0, 2}, {0, 2}, {1, 2}, {1, 2}, {length, 4}, {large ? in64 : directory, 4}, {0, 2}});
  put(path, local + header);
  fs::resize_file(path, directory);
  std::ofstream(path, std::ios::binary | std::ios::app) << end;
}

TEST(NpzFormat, LargeArraysStayInTheArchive) {
  const TemporaryDirectory folder;
  const fs::path path = folder / "x.npz";
  for (const std::int64_t rows : {2'000'000, 40'000'000}) {  // 2 GB, and 41 GB, which takes ZIP64
    write_sparse_archive(path, {DType::u8, {rows, 1024}});
    {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>((rows > 4'000'000 ? 55 : 35) + 128 + 1024 * 5));
      file << std::string(2048, 'x');
    }
    const std::int64_t before = resident_bytes();
    const auto source = open_spec(path.string());
    EXPECT_EQ(source->rows(), rows);
    EXPECT_EQ(source->whole(0), nullptr);
    Tensor row(DType::u8, {1024});
    for (std::int64_t i = 0; i < rows; i += 10'007) source->fetch(0, i, row.bytes());
    source->fetch(0, 6, row.bytes());
    EXPECT_EQ(row.at(0), 'x');
    EXPECT_LT(resident_bytes() - before, 16 << 20);
    fs::resize_file(path, 1 << 20);
    expect_contains(error_of([&] { source->fetch(0, rows - 1, row.bytes()); }),
                    {"x.npz', array 'x', row", "it has become shorter"});
  }
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
