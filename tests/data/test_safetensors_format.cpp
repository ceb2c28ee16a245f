// safetensors as a source, against files that the reference library wrote.
#include "runtime/files/safetensors.h"
#include "tests/data/source_reading.h"

namespace gcomp::data::test {
namespace {

TEST(SafetensorsFormat, ReadsWhatItsOwnLibraryWrote) {
  const fs::path path = array_fixture("arrays.safetensors");
  EXPECT_EQ(parse_spec(path.string()).format->definition.name, "safetensors");
  const auto source = open_spec(path.string());
  EXPECT_EQ(source->rows(), 6);
  EXPECT_EQ(source->arrays().size(), 4u);
  EXPECT_EQ(source->notes().size(), 1u);  // weights
  expect_counted(*source, "image");
  expect_counted(*source, "half");
  for (std::int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(integers(*source, "label", i), (std::vector<std::int64_t>{i * i}));
    EXPECT_EQ(integers(*source, "flags", i), (std::vector<std::int64_t>{1, 0}));
  }
  for (std::size_t i = 0; i < 4; ++i)  // short rows are read once, bools as they are due
    EXPECT_EQ(source->whole(i) == nullptr, source->arrays()[i].second.dtype == DType::boolean);
}

TEST(SafetensorsFormat, GivesWhatIsWanted) {
  const std::vector<WantedArray> wanted{{.name = "label", .input = false}, {.name = "image"}};
  EXPECT_EQ(open_spec(array_fixture("arrays.safetensors").string(), wanted)->arrays().size(), 2u);
}

TEST(SafetensorsFormat, StaysOnDisk) {
  const TemporaryDirectory folder;
  const fs::path path = folder / "x.safetensors";
  const std::vector<NamedType> types{{"x", {DType::u8, {10'000'000, 4096}}}};  // 41 GB
  const std::vector<std::byte> header = runtime::safetensors_layout(types).header;
  put(path, {reinterpret_cast<const char*>(header.data()), header.size()});
  fs::resize_file(path, header.size() + 10'000'000ull * 4096);
  const std::int64_t before = resident_bytes();
  const auto source = open_spec(path.string());
  Tensor row(DType::u8, {4096});
  for (std::int64_t i = 0; i < source->rows(); i += 10'007) source->fetch(0, i, row.bytes());
  EXPECT_LT(resident_bytes() - before, 16 << 20);
  fs::resize_file(path, 1 << 20);
  expect_contains(error_of([&] { source->fetch(0, 9'999'999, row.bytes()); }), {"row 9999999", "it has become shorter"});
}

TEST(SafetensorsFormat, RefusesWhatIsDamaged) {
  const TemporaryDirectory folder;
  const fs::path path = folder / "x.safetensors";
  const std::string name = "safetensors:" + path.string();
  const std::string whole = contents(array_fixture("arrays.safetensors"));
  put(path, whole.substr(0, whole.size() - 1));
  expect_refused(name, {"x.safetensors': the tensors end at byte"});
  put(path, whole + "!");
  expect_refused(name, {"x.safetensors': the tensors end at byte"});
  put(path, whole.substr(0, 5));
  expect_refused(name, {"too few for a header"});
  put(path, bytes_of<std::uint64_t>({~0ull}) + "{}");
  expect_refused(name, {"a header of 18446744073709551615 bytes in 2 bytes"});
  const auto with_header = [&](const std::string& header, const std::string& data) {
    put(path, bytes_of<std::uint64_t>({header.size()}) + header + data);
  };
  with_header(R"({"x":{"dtype":"F32","shape":[4611686018427387904,2],"data_offsets":[0,8]}})", "12345678");
  expect_refused(name, {"tensor 'x'"});
  with_header(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234");
  expect_refused(name, {"tensor 'x': offsets 0 to 4 for f32[2]"});
  with_header(R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", "123");
  expect_refused(name, {"tensor 'x' begins at byte 1"});
  with_header(R"({"x":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", std::string("\0\1\2", 3));
  const auto source = open_spec(name);
  EXPECT_EQ(integers(*source, "x", 1), (std::vector<std::int64_t>{1}));
  expect_contains(error_of([&] { integers(*source, "x", 2); }), {"array 'x', row 2: a bool is neither 0 nor 1"});
}

}  // namespace
}  // namespace gcomp::data::test
