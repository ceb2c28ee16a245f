#include <gtest/gtest.h>

#include <algorithm>

#include "ir/base/error.h"
#include "runtime/files/npz.h"
#include "runtime/files/npz_stream.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::runtime {
namespace {

using test::contents;
using test::TemporaryDirectory;

Tensor counting(DType dtype, Shape shape) {
  Tensor tensor(dtype, std::move(shape));
  for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, static_cast<double>(i));
  return tensor;
}

std::vector<std::pair<std::string, TensorType>> types_of(const std::vector<NamedTensor>& arrays) {
  std::vector<std::pair<std::string, TensorType>> types;
  for (const auto& [name, tensor] : arrays) types.emplace_back(name, tensor.type());
  return types;
}

/// Bytes [part * i, part * (i + 1)) of an array, as far as there are any.
std::span<const std::byte> part_of(const Tensor& tensor, std::size_t part, std::size_t i) {
  const std::span<const std::byte> bytes = tensor.bytes();
  const std::size_t first = std::min(part * i, bytes.size());
  return bytes.subspan(first, std::min(part, bytes.size() - first));
}

TEST(NpzStream, RowsSideBySideGiveTheBytesOfWholeArrays) {
  const TemporaryDirectory directory;
  const std::vector<NamedTensor> arrays{
      {"a", counting(DType::f32, {100, 3})}, {"b", counting(DType::i64, {100})}, {"empty", Tensor(DType::f64, {0, 2})}};
  write_npz(directory / "whole.npz", arrays);
  NpzStream stream(directory / "parts.npz", types_of(arrays));
  for (std::size_t i = 0; i < 100; ++i)
    for (std::size_t k = 0; k < arrays.size(); ++k) stream.append(k, part_of(arrays[k].second, 36, i));
  stream.commit();
  EXPECT_EQ(contents(directory / "parts.npz"), contents(directory / "whole.npz"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 2);
}

TEST(NpzStream, WithoutCommitNothingIsThere) {
  const TemporaryDirectory directory;
  {
    NpzStream stream(directory / "a.npz", {{"a", {DType::f32, {2}}}});
    const float value = 1;
    stream.append(0, std::as_bytes(std::span(&value, 1)));
    EXPECT_THROW(stream.commit(), InternalError) << "an element is missing";
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(NpzStream, ANameThatTheFormatHasNoRoomForIsRefused) {
  const test::TemporaryDirectory folder;
  const std::string longest(65'531, 'n');  // and ".npy"
  const std::vector<NamedTensor> good{{longest, Tensor(DType::f32, {2})}}, bad{{longest + "n", Tensor(DType::f32, {2})}};
  write_npz(folder / "good.npz", good);
  EXPECT_EQ(NpzFile(folder / "good.npz").names(), std::vector<std::string>{longest});
  const std::string path = folder / "bad.npz";
  const std::string wanted = "cannot write '" + path + "': the name '" + std::string(60, 'n') + "...' has 65536 bytes";
  EXPECT_NE(test::user_error([&] { write_npz(path, bad); }).find(wanted), std::string::npos);
  EXPECT_NE(test::user_error([&] { NpzStream(path, {{bad[0].first, bad[0].second.type()}}); }).find(wanted), std::string::npos);
  EXPECT_EQ(folder.files(), 1);
}

}  // namespace
}  // namespace gcomp::runtime
