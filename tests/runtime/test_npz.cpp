#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>

#include "runtime/files/npz.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::runtime {
namespace {

using test::contents;
using test::put;
using test::TemporaryDirectory;
using test::user_error;

std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(GCOMP_SOURCE_DIR) / "tests/fixtures/npz" / name;
}

std::vector<NamedTensor> arrays_of_each_dtype() {
  std::vector<NamedTensor> arrays;
  for (DType dtype : kAllDTypes) arrays.emplace_back(name_of(dtype), Tensor::of(dtype, {3, 2}, {0, 1, 1, 0, 1, 0}));
  arrays.emplace_back("a scalar/\xc3\xa4", Tensor::scalar(DType::f64, std::nan("")));
  arrays.emplace_back("empty", Tensor(DType::i32, {2, 0, 3}));
  arrays.emplace_back("vector", Tensor::of(DType::f32, {4}, {1, -2, 0.5, 1e30}));
  return arrays;
}

/// The smallest archive with one array: a hand-made .npy under the name x.
void write_with_header(const std::filesystem::path& path, const std::string& literal, std::size_t element_bytes) {
  std::string npy("\x93NUMPY\x01\x00", 8);
  npy += static_cast<char>(literal.size() & 0xff);
  npy += static_cast<char>(literal.size() >> 8);
  npy += literal + std::string(element_bytes, '\1');
  ZipWriter archive(path);
  archive.add("x.npy", std::as_bytes(std::span(npy)), Compression::stored);
  archive.commit();
}

TEST(Npz, EveryDtypeComesBackStoredAndDeflated) {
  const TemporaryDirectory directory;
  const std::vector<NamedTensor> arrays = arrays_of_each_dtype();
  for (Compression compression : {Compression::stored, Compression::deflated}) {
    write_npz(directory / "a.npz", arrays, compression);
    const NpzFile file(directory / "a.npz");
    ASSERT_EQ(file.names().size(), arrays.size());
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      EXPECT_EQ(file.names()[i], arrays[i].first);
      EXPECT_EQ(file.type(arrays[i].first), arrays[i].second.type());
      EXPECT_EQ(file.load(arrays[i].first), arrays[i].second) << arrays[i].first;
    }
  }
}

TEST(Npz, EqualArraysGiveEqualBytesAndNothingElseIsLeft) {
  const TemporaryDirectory directory;
  write_npz(directory / "a.npz", arrays_of_each_dtype());
  write_npz(directory / "b.npz", arrays_of_each_dtype());
  write_npz(directory / "b.npz", arrays_of_each_dtype());
  EXPECT_EQ(contents(directory / "a.npz"), contents(directory / "b.npz"));
  EXPECT_EQ(directory.files(), 2);
}

TEST(Npz, ReadsWhatNumpyWrote) {
  for (const char* name : {"numpy_stored.npz", "numpy_compressed.npz"}) {
    const NpzFile file(fixture(name));
    const std::pair<const char*, DType> kinds[] = {{"f8", DType::f64}, {"f4", DType::f32}, {"f2", DType::f16}, {"i1", DType::i8},
                                                   {"i2", DType::i16}, {"i4", DType::i32}, {"i8", DType::i64}, {"u1", DType::u8},
                                                   {"u2", DType::u16}, {"u4", DType::u32}, {"u8", DType::u64}};
    for (const auto& [kind, dtype] : kinds) EXPECT_EQ(file.load(kind), Tensor::of(dtype, {2, 3}, {0, 1, 2, 3, 4, 5})) << kind;
    EXPECT_EQ(file.load("bool"), Tensor::of(DType::boolean, {2, 3}, {0, 1, 0, 1, 0, 1}));
    EXPECT_EQ(file.load("scalar"), Tensor::scalar(DType::f32, 1.5));
    EXPECT_EQ(file.load("vector"), Tensor::of(DType::f64, {2}, {-1.25, INFINITY}));
    EXPECT_EQ(file.load("empty"), Tensor(DType::f32, {0, 4}));
  }
}

TEST(Npz, ReadsNumpysOtherLayouts) {
  const NpzFile file(fixture("numpy_layouts.npz"));
  Tensor counting(DType::f32, {2, 3, 4});
  for (int i = 0; i < 24; ++i) counting.set(i, i);
  EXPECT_EQ(file.load("fortran"), counting);
  EXPECT_EQ(file.load("big_endian"), Tensor::of(DType::i32, {2, 3}, {0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(file.load("bfloat16"), Tensor::of(DType::bf16, {2}, {1, -2}));
}

/// In parts of `count` rows, joined.
Tensor in_parts(const NpzFile& file, const std::string& name, std::int64_t count) {
  NpzRows rows = file.open_rows(name);
  Tensor whole(rows.type());
  std::byte* to = whole.data();
  while (rows.position() < rows.rows()) {
    const Tensor& part = rows.next(count);
    to = std::ranges::copy(part.bytes(), to).out;
  }
  EXPECT_EQ(rows.next(count).shape()[0], 0);
  return whole;
}

TEST(Npz, RowsReadInPartsAreTheArray) {
  const TemporaryDirectory directory;
  const std::vector<NamedTensor> arrays = arrays_of_each_dtype();
  for (Compression compression : {Compression::stored, Compression::deflated}) {
    write_npz(directory / "a.npz", arrays, compression);
    const NpzFile file(directory / "a.npz");
    for (const auto& [name, tensor] : arrays) {
      if (tensor.shape().empty()) continue;
      EXPECT_EQ(in_parts(file, name, 2), tensor) << name;
    }
    EXPECT_NE(user_error([&] { file.open_rows(arrays[std::size(kAllDTypes)].first); }).find("it is a scalar"), std::string::npos);
  }
  const NpzFile layouts(fixture("numpy_layouts.npz"));
  for (const char* name : {"fortran", "big_endian"}) EXPECT_EQ(in_parts(layouts, name, 1), layouts.load(name)) << name;
}

TEST(Npz, RowsOfSeveralArraysAreReadSideBySide) {
  const TemporaryDirectory directory;
  const std::vector<NamedTensor> arrays = {{"x", Tensor::of(DType::f32, {4, 1}, {1, 2, 3, 4})},
                                           {"y", Tensor::of(DType::i64, {4}, {5, 6, 7, 8})}};
  write_npz(directory / "a.npz", arrays);
  const NpzFile file(directory / "a.npz");
  NpzRows x = file.open_rows("x"), y = file.open_rows("y");
  EXPECT_EQ(x.next(3), Tensor::of(DType::f32, {3, 1}, {1, 2, 3}));
  EXPECT_EQ(y.next(3), Tensor::of(DType::i64, {3}, {5, 6, 7}));
  EXPECT_EQ(x.next(3), Tensor::of(DType::f32, {1, 1}, {4}));
  EXPECT_EQ(y.next(3), Tensor::of(DType::i64, {1}, {8}));
}

TEST(Npz, AChangedElementIsNoticedWithTheLastRow) {
  const TemporaryDirectory directory;
  write_npz(directory / "a.npz", std::vector<NamedTensor>{{"x", Tensor::of(DType::f32, {3}, {1, 2, 3})}});
  std::string bytes = contents(directory / "a.npz");
  bytes[bytes.find(std::string("\0\0\x40\x40", 4))] = 1;
  put(directory / "a.npz", bytes);
  const NpzFile file(directory / "a.npz");
  NpzRows rows = file.open_rows("x");
  rows.next(2);
  EXPECT_NE(user_error([&] { rows.next(2); }).find("a.npz', array 'x': damaged: CRC error"), std::string::npos);
}

TEST(Npz, RefusesOtherDtypesOnlyWhenAskedForThem) {
  const NpzFile file(fixture("numpy_refused.npz"));
  EXPECT_EQ(file.type("good"), (TensorType{DType::i64, {2, 3}}));
  const std::string start = concat("'", file.path(), "', array '");
  EXPECT_EQ(user_error([&] { file.load("objects"); }), start + "objects': an object array (pickled Python), wanted numbers");
  EXPECT_EQ(user_error([&] { file.type("record"); }), start + "record': a record dtype, wanted plain numbers");
  EXPECT_NE(user_error([&] { file.type("text"); }).find("dtype '<U2' is not supported"), std::string::npos);
  EXPECT_NE(user_error([&] { file.load("complex"); }).find("dtype '<c16' is not supported"), std::string::npos);
}

TEST(Npz, AnUnknownNameGetsTheNearestOne) {
  const NpzFile file(fixture("numpy_layouts.npz"));
  EXPECT_EQ(
      user_error([&] { file.load("fotran"); }),
      concat("'", file.path(), "' has no array 'fotran', it has 'fortran', 'big_endian' and 'bfloat16'; did you mean 'fortran'?"));
}

TEST(Npz, HeadersInOtherForms) {
  const TemporaryDirectory directory;
  const auto path = directory / "a.npz";
  for (const char* literal : {"{\"shape\":(2,3),\"descr\":\"<f4\",\"fortran_order\":False}",
                              "{ 'descr' : '=f4' , 'fortran_order' : False , 'shape' : ( 2L , 3L , ) , }\n"}) {
    write_with_header(path, literal, 24);
    EXPECT_EQ(NpzFile(path).type("x"), (TensorType{DType::f32, {2, 3}})) << literal;
  }
  write_with_header(path, "{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", 2);
  EXPECT_EQ(NpzFile(path).load("x"), Tensor::of(DType::boolean, {2}, {1, 1}));
}

TEST(Npz, BadHeadersAreRefused) {
  const TemporaryDirectory directory;
  const auto path = directory / "a.npz";
  const std::pair<const char*, const char*> cases[] = {
      {"", "lacks a '{'"},
      {"{'descr': '<f4', 'fortran_order': False}", "lacks descr, fortran_order or shape"},
      {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "the key 'descr' twice"},
      {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "neither True nor False"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", "a dimension that is no number"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "a dimension that is no number"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999999, 999999999999999)}", "more than 2^48 elements"},
      {"{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387,)}", "more than 2^48 elements"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "wanted 65 of header and 12 for f32[3]"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", "an unknown key 'x'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} + 1", "text after the dict"},
      {"{'descr: ", "an unfinished string"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}",
       "more than 32 dimensions"},
  };
  for (const auto& [literal, wanted] : cases) {
    write_with_header(path, literal, 8);
    const std::string message = user_error([&] { NpzFile(path).type("x"); });
    EXPECT_NE(message.find(wanted), std::string::npos) << literal << ": " << message;
    EXPECT_EQ(message.find(concat("'", path.string(), "', array 'x': ")), 0u) << message;
  }
}

TEST(Npz, DamagedFilesNeverCrash) {
  const TemporaryDirectory directory;
  for (Compression compression : {Compression::stored, Compression::deflated}) {
    const std::vector<NamedTensor> arrays = {{"x", Tensor::of(DType::f32, {2, 2}, {1, 2, 3, 4})},
                                             {"label", Tensor::of(DType::i64, {2}, {7, 1})}};
    write_npz(directory / "good.npz", arrays, compression);
    const std::string good = contents(directory / "good.npz");
    const int refused = test::survive_damage(good, [&](const std::string& bad) {
      put(directory / "bad.npz", bad);
      const NpzFile file(directory / "bad.npz");
      for (const std::string& name : file.names()) file.load(name);
    });
    EXPECT_GT(refused, static_cast<int>(good.size()));
  }
}

TEST(Npz, AChangedElementIsNoticed) {
  const TemporaryDirectory directory;
  const std::vector<NamedTensor> arrays = {{"x", Tensor::of(DType::u8, {4}, {81, 82, 83, 84})}};
  write_npz(directory / "a.npz", arrays);
  std::string bytes = contents(directory / "a.npz");
  bytes[bytes.find("QRST")] = 'P';
  put(directory / "a.npz", bytes);
  const NpzFile file(directory / "a.npz");
  EXPECT_NE(user_error([&] { file.load("x"); }).find("array 'x': damaged: CRC error"), std::string::npos);
}

TEST(Npz, LimitsHold) {
  const TemporaryDirectory directory;
  write_npz(directory / "a.npz", arrays_of_each_dtype());
  EXPECT_NE(user_error([&] { NpzFile(directory / "a.npz", {.entries = 3}); }).find("has 16 entries, the limit is 3"),
            std::string::npos);
  EXPECT_NE(user_error([&] { NpzFile(directory / "a.npz", {.expanded_bytes = 1000}); }).find("limit of 1000 bytes"),
            std::string::npos);
}

TEST(Npz, OtherFilesAreRefused) {
  const TemporaryDirectory directory;
  put(directory / "empty.npz", "");
  put(directory / "text.npz", "this is a text that is longer than the end record of an archive");
  EXPECT_NE(user_error([&] { NpzFile(directory / "empty.npz"); }).find("empty.npz': no zip archive, or truncated"),
            std::string::npos);
  EXPECT_NE(user_error([&] { NpzFile(directory / "text.npz"); }).find("text.npz': no zip archive, or truncated"),
            std::string::npos);
  EXPECT_NE(user_error([&] { NpzFile(directory / "none.npz"); }).find("none.npz': No such file or directory"), std::string::npos);
  EXPECT_NE(user_error([&] { NpzFile(directory.path()); }).find("it is no regular file"), std::string::npos);
}

TEST(Npy, ComesBackAndRefusesTruncation) {
  const TemporaryDirectory directory;
  const Tensor tensor = Tensor::of(DType::i16, {2, 2}, {1, -2, 3, -4});
  write_npy(directory / "a.npy", tensor);
  const std::string good = contents(directory / "a.npy");
  EXPECT_EQ(good.size() % 64, 8u);
  EXPECT_EQ(read_npy(directory / "a.npy"), tensor);
  put(directory / "a.npy", good.substr(0, good.size() - 1));
  EXPECT_NE(user_error([&] { read_npy(directory / "a.npy"); }).find("it has 7 bytes of elements, wanted 8 for i16[2,2]"),
            std::string::npos);
  test::survive_damage(good, [&](const std::string& bad) {
    put(directory / "a.npy", bad);
    read_npy(directory / "a.npy");
  });
}

TEST(AtomicFile, AMissingDirectoryIsNamed) {
  const TemporaryDirectory directory;
  const std::vector<NamedTensor> arrays = {{"x", Tensor(DType::f32, {4})}};
  const auto path = directory / "none/a.npz";
  EXPECT_EQ(user_error([&] { write_npz(path, arrays); }),
            "cannot write '" + path.string() + "': there is no directory '" + path.parent_path().string() + "'");
  EXPECT_NE(user_error([&] { write_file("/dev/null", {}); }).find("it exists and is no regular file"), std::string::npos);
  EXPECT_NE(user_error([&] { write_file(directory.path(), {}); }).find("it exists and is no regular file"), std::string::npos);
}

TEST(AtomicFile, WithoutCommitTheOldFileStays) {
  const TemporaryDirectory directory;
  put(directory / "a", "old");
  {
    AtomicFile file(directory / "a");
    file.write("new");
  }
  EXPECT_EQ(contents(directory / "a"), "old");
  EXPECT_EQ(directory.files(), 1);
  write_file(directory / "a", std::as_bytes(std::span("new", 3)));
  EXPECT_EQ(contents(directory / "a"), "new");
  EXPECT_EQ(directory.files(), 1);
}

TEST(AtomicFile, ASymbolicLinkIsFollowed) {
  const TemporaryDirectory directory;
  put(directory / "target", "old");
  std::filesystem::create_symlink("target", directory / "link");
  write_file(directory / "link", std::as_bytes(std::span("new", 3)));
  EXPECT_EQ(contents(directory / "target"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(directory / "link"));
}

/// A file size limit stands for a full disk: the same write calls fail, with another reason.
TEST(AtomicFile, AFullDiskLeavesTheOldFileAndNothingElse) {
  const TemporaryDirectory directory;
  put(directory / "a.npz", "old");
  const std::vector<NamedTensor> arrays = {{"x", Tensor(DType::f32, {100'000})}};
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{65536, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string archive = user_error([&] { write_npz(directory / "a.npz", arrays); });
  const std::string plain = user_error([&] { write_npy(directory / "a.npz", arrays[0].second); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(archive, "cannot write '" + (directory / "a.npz").string() + "': File too large");
  EXPECT_EQ(plain, archive);
  EXPECT_EQ(contents(directory / "a.npz"), "old");
  EXPECT_EQ(directory.files(), 1);
}

TEST(AtomicFile, AReadOnlyDirectorySaysSo) {
  const TemporaryDirectory directory;
  const bool root = ::geteuid() == 0;
  std::filesystem::permissions(directory.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec |
                                                     std::filesystem::perms::others_read | std::filesystem::perms::others_exec);
  constexpr uid_t kNobody = 65534;
  if (root && ::seteuid(kNobody) != 0) GTEST_SKIP() << "root writes everywhere and cannot become another user here";
  const std::string message = user_error([&] { write_npz(directory / "a.npz", {}); });
  ASSERT_TRUE(!root || ::seteuid(0) == 0);
  EXPECT_EQ(message, "cannot write '" + (directory / "a.npz").string() + "': Permission denied");
  std::filesystem::permissions(directory.path(), std::filesystem::perms::owner_all);
}

}  // namespace
}  // namespace gcomp::runtime
