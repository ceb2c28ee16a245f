// .npy files that NumPy wrote, one or a folder of them, and files larger than memory.
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/files/npy.h"
#include "tests/data/source_reading.h"

namespace gcomp::data::test {
namespace {

TEST(NpyFormat, ReadsWhatNumpyWrote) {
  const auto source = open_spec(array_fixture("npy").string());
  EXPECT_EQ(source->rows(), 6);
  for (const char* name : {"image", "half", "big", "big_double", "fortran", "fortran_big"}) expect_counted(*source, name);
  for (std::int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(integers(*source, "label", i), (std::vector<std::int64_t>{i * i}));
    EXPECT_EQ(integers(*source, "flags", i), (std::vector<std::int64_t>{1, 0}));
  }
  EXPECT_EQ(to_string(source->arrays()[array_of(*source, "big")].second), "i32[3]");
  EXPECT_NE(source->whole(array_of(*source, "image")), nullptr);  // rows of 24 bytes
  EXPECT_EQ(source->whole(array_of(*source, "flags")), nullptr);
  EXPECT_NE(source->whole(array_of(*source, "fortran")), nullptr);
}

TEST(NpyFormat, LeavesOutWhatHasNoRows) {
  const auto source = open_spec(array_fixture("npy").string());
  std::string notes;
  for (const std::string& note : source->notes()) notes += note + "\n";
  expect_contains(notes, {"array 'scalar' is left out: it is a scalar", "array 'weights' is left out: it has 4 rows, others have 6",
                          "array 'complex' is left out", "dtype '<c8' is not supported"});
  EXPECT_EQ(source->arrays().size(), 8u);
}

TEST(NpyFormat, GivesWhatIsWanted) {
  const std::vector<WantedArray> two{{.name = "image"}, {.name = "label", .input = false}};
  EXPECT_EQ(array_names(*open_spec(array_fixture("npy").string(), two)), (std::vector<std::string>{"image", "label"}));
  const std::vector<WantedArray> other{{.name = "x"}, {.name = "label", .input = false}};  // to be mapped: all are there
  EXPECT_EQ(open_spec(array_fixture("npy").string(), other)->arrays().size(), 8u);
  const auto wanting = [](const char* name) {
    const std::vector<WantedArray> wanted{{.name = "image"}, {.name = name}};
    return error_of([&] { open_spec(array_fixture("npy").string(), wanted); });
  };
  expect_contains(wanting("scalar"), {"array 'scalar': it is a scalar, wanted one row for each sample"});
  expect_contains(wanting("weights"), {"array 'image' has 6 rows, but array 'weights' has 4"});
  expect_contains(wanting("complex"), {"complex.npy", "dtype '<c8' is not supported"});
}

TEST(NpyFormat, OneFileIsOneArray) {
  const auto source = open_spec(array_fixture("npy/image.npy").string());
  EXPECT_EQ(array_names(*source), (std::vector<std::string>{"image"}));
  expect_counted(*source, "image");
  expect_refused(array_fixture("npy/scalar.npy").string(), {"scalar.npy", "it is a scalar, wanted one row"});
  expect_refused(array_fixture("npy/complex.npy").string(), {"complex.npy", "dtype '<c8' is not supported"});
}

/// A header alone, and a file as long as it says: no disk could hold it.
fs::path sparse_array(const TemporaryDirectory& folder, const TensorType& type) {
  const fs::path path = folder / "sparse.npy";
  const std::string header = runtime::npy_header(type);
  put(path, header);
  fs::resize_file(path, header.size() + static_cast<std::uintmax_t>(type.bytes()));
  return path;
}

TEST(NpyFormat, TakesNoMemoryForAFileLargerThanIt) {
  const TemporaryDirectory folder;
  const TensorType type{DType::f32, {40'000'000, 256}};  // 41 GB
  const fs::path path = sparse_array(folder, type);
  const std::string last(1024, '\x41');
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1024, std::ios::end);
    file << last;
  }
  const std::int64_t before = resident_bytes();
  const auto source = open_spec(path.string());
  EXPECT_EQ(source->rows(), 40'000'000);
  EXPECT_EQ(source->whole(0), nullptr);
  Tensor row(DType::f32, {256});
  for (std::int64_t i = 0; i < source->rows(); i += 10'007) source->fetch(0, i, row.bytes());
  source->fetch(0, source->rows() - 1, row.bytes());
  EXPECT_EQ(std::memcmp(row.data(), last.data(), last.size()), 0);
  EXPECT_LT(resident_bytes() - before, 16 << 20);
}

TEST(NpyFormat, FileThatShrinksIsAnError) {
  const TemporaryDirectory folder;
  const fs::path path = folder / "x.npy";
  runtime::write_npy(path, Tensor(DType::f32, {100, 1000}));
  const auto source = open_spec(path.string());
  fs::resize_file(path, 4000 * 50);
  Tensor row(DType::f32, {1000});
  source->fetch(0, 40, row.bytes());
  expect_contains(error_of([&] { source->fetch(0, 99, row.bytes()); }),
                  {"x.npy', array 'x', row 99", "bytes are missing", "it has become shorter while it was read"});
}

TEST(NpyFormat, RefusesWhatIsDamaged) {
  const TemporaryDirectory folder;
  const fs::path path = folder / "x.npy";
  const std::string whole = contents(array_fixture("npy/image.npy")), name = "npy:" + path.string();
  put(path, whole.substr(0, whole.size() - 1));
  expect_refused(name, {"x.npy': it has 143 bytes of elements, wanted 144 for f32[6,2,3]"});
  put(path, whole + "!");
  expect_refused(name, {"x.npy': it has 145 bytes of elements, wanted 144"});
  put(path, whole.substr(0, 40));
  expect_refused(name, {"x.npy'", "bytes are missing"});
  put(path, "");
  expect_refused(name, {"x.npy'", "8 bytes are missing from byte 0"});
  put(path, "no array at all, but text");
  expect_refused(name, {"x.npy': no .npy array"});
  put(path, runtime::npy_header({DType::f32, {1 << 30, 1 << 18}}));
  expect_refused(name, {"x.npy'", "0 bytes of elements"});
  put(path, runtime::npy_header({DType::f32, {0, 4}}));
  expect_refused(name, {"has no rows"});
  put(path, runtime::npy_header({DType::f32, {4, 0}}));
  expect_refused(name, {"its rows have no elements"});
  expect_refused("npy:" + folder.path().string() + "/nothing.npy", {"nothing.npy' does not exist"});
  fs::remove(path);
  expect_refused("npy:" + folder.path().string(), {"has no .npy files"});
}

TEST(NpyFormat, RefusesWhatIsNoFile) {
  const TemporaryDirectory folder;
  const fs::path path = folder / "x.npy";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);  // nobody writes to it: opening it would wait for ever
  expect_refused("npy:" + path.string(), {"x.npy': it is no regular file"});
  expect_refused(path.string(), {"x.npy': it is no regular file"});
}

TEST(NpyFormat, RefusesWhatItMayNotRead) {
  if (::geteuid() == 0) GTEST_SKIP() << "the superuser may read every file: no file is unreadable";
  const TemporaryDirectory folder;
  const fs::path path = folder / "x.npy";
  runtime::write_npy(path, Tensor(DType::f32, {3}));
  fs::permissions(path, fs::perms::none);
  expect_refused("npy:" + path.string(), {"cannot read '", "x.npy': Permission denied"});
}

TEST(NpyFormat, RefusesAnArrayInFortranOrderLargerThanMemory) {
  const TemporaryDirectory folder;
  const fs::path path = sparse_array(folder, {DType::f32, {40'000'000, 256}});
  std::string header = contents(array_fixture("npy/fortran.npy")).substr(0, 128);
  const std::size_t shape = header.find("(6, 2, 3)");
  header.replace(shape, 19, "(40000000, 256), } ").replace(header.find("<f8"), 3, "<f4");
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << header;
  expect_refused(path.string(), {"f32[40000000,256] in Fortran order, which is read whole", "numpy.ascontiguousarray"});
}

}  // namespace
}  // namespace gcomp::data::test
