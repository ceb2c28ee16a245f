#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "runtime/files/safetensors.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::runtime {
namespace {

using test::TemporaryDirectory;
using test::user_error;

Safetensors tensors_of_each_dtype() {
  Safetensors contents;
  for (DType dtype : kAllDTypes) contents.tensors[concat("t.", name_of(dtype))] = Tensor::of(dtype, {3}, {1, 0, 1});
  contents.tensors["scalar \xc3\xa4"] = Tensor::scalar(DType::f32, std::nan(""));
  contents.tensors["empty"] = Tensor(DType::i64, {0, 7});
  contents.metadata = {{"format", "gcomp"}, {"step", "17"}};
  return contents;
}

/// A file with this header over `data` bytes of zeros.
std::vector<std::byte> file_of(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  file += header + std::string(data, '\0');
  const auto bytes = std::as_bytes(std::span(file));
  return {bytes.begin(), bytes.end()};
}

std::string refusal(const std::string& header, std::size_t data) {
  return user_error([&] { parse_safetensors(file_of(header, data), "w.safetensors"); });
}

TEST(Safetensors, EveryDtypeComesBack) {
  const TemporaryDirectory directory;
  write_safetensors(directory / "w.safetensors", tensors_of_each_dtype());
  EXPECT_EQ(read_safetensors(directory / "w.safetensors"), tensors_of_each_dtype());
  EXPECT_EQ(directory.files(), 1);
  const Safetensors empty;
  EXPECT_EQ(parse_safetensors(serialize_safetensors(empty), "e"), empty);
}

/// The bytes as the format's page writes them down, padded to 8 and with the wider type first.
TEST(Safetensors, BytesAreTheFormats) {
  Safetensors contents;
  contents.tensors["a"] = Tensor::of(DType::u8, {2}, {7, 8});
  contents.tensors["b"] = Tensor::of(DType::i16, {1, 1}, {258});
  const std::vector<std::byte> bytes = serialize_safetensors(contents);
  const std::string header =
      R"({"b":{"dtype":"I16","shape":[1,1],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})";
  const std::size_t padded = (header.size() + 7) / 8 * 8;
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  ASSERT_EQ(length, padded);
  const std::string text(reinterpret_cast<const char*>(bytes.data()) + 8, bytes.size() - 8);
  EXPECT_EQ(text, header + std::string(padded - header.size(), ' ') + "\x02\x01\x07\x08");
}

TEST(Safetensors, EachRuleRefuses) {
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_NO_THROW(parse_safetensors(file_of("{" + a + "}", 8), "w"));
  const struct {
    std::string header;
    std::size_t data;
    const char* wanted;
  } cases[] = {
      {"{" + a + "," + a + "}", 8, "the key 'a' twice"},
      {"{" + a + "}", 9, "the tensors end at byte 8 of 9"},
      {"{" + a + "}", 7, "the tensors end at byte 8 of 7"},
      {"{" + a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}})", 10,
       "'b' begins at byte 9, but the one before ends at 8"},
      {"{" + a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[7,8]}})", 8,
       "'b' begins at byte 7, but the one before ends at 8"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "offsets 0 to 8 for f32[3]"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "offsets 8 to 0"},
      {R"({"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})", 8, "dtype 'F8_E4M3' is not supported"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "a dimension is no number"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8, "a dimension is no number"},
      {R"({"a":{"dtype":"F64","shape":[1152921504606846976],"data_offsets":[0,8]}})", 8, "more than 2^48 elements"},
      {R"({"a":{"dtype":"F64","shape":[1152921504606846976,99],"data_offsets":[0,8]}})", 8, "more than 2^48 elements"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", 8, "lacks 'data_offsets'"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8, "keys besides"},
      {R"({"a":7})", 8, "lacks 'dtype'"},
      {R"({"__metadata__":{"a":1}})", 0, "a value that is no string"},
      {R"({"a":{"dtype":{"b":{"c":1}}}})", 0, "nested deeper than 3"},
      {"[1]", 0, "does not start with '{'"},
      {"{\"a\"", 0, "no valid JSON"},
      {"", 0, "does not start with '{'"},
  };
  for (const auto& c : cases) {
    const std::string message = refusal(c.header, c.data);
    EXPECT_NE(message.find(c.wanted), std::string::npos) << c.header << ": " << message;
    EXPECT_EQ(message.find("'w.safetensors': "), 0u);
  }
}

TEST(Safetensors, HeaderLengthIsNotTrusted) {
  for (std::uint64_t length : {std::uint64_t{3}, std::uint64_t{200'000'000}, UINT64_MAX}) {
    std::vector<std::byte> bytes(10);
    std::memcpy(bytes.data(), &length, sizeof(length));
    EXPECT_NE(user_error([&] { parse_safetensors(bytes, "w"); }).find("in 2 bytes, the limit is 100000000"), std::string::npos);
  }
  EXPECT_NE(user_error([&] { parse_safetensors({}, "w"); }).find("too few for a header"), std::string::npos);
}

TEST(Safetensors, NamesThatJsonCannotHoldAreRefused) {
  Safetensors contents;
  contents.tensors["\xff"] = Tensor(DType::f32, {1});
  EXPECT_NE(user_error([&] { serialize_safetensors(contents); }).find("not UTF-8"), std::string::npos);
  Safetensors reserved;
  reserved.tensors["__metadata__"] = Tensor(DType::f32, {1});
  EXPECT_NE(user_error([&] { serialize_safetensors(reserved); }).find("__metadata__"), std::string::npos);
}

TEST(Safetensors, DamagedBytesNeverCrash) {
  const std::vector<std::byte> bytes = serialize_safetensors(tensors_of_each_dtype());
  const std::string good(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const int refused = test::survive_damage(good, [](const std::string& bad) {
    const auto bytes = std::as_bytes(std::span(bad));
    parse_safetensors({bytes.begin(), bytes.end()}, "w");
  });
  EXPECT_GT(refused, static_cast<int>(good.size()));
}

}  // namespace
}  // namespace gcomp::runtime
