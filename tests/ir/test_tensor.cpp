// A tensor is a value, whoever owns its bytes.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "gcomp/tensor_view.h"
#include "ir/base/error.h"
#include "ir/base/tensor.h"

namespace gcomp {
namespace {

std::shared_ptr<std::byte[]> bytes_of(std::vector<float> values) {
  auto bytes = std::make_shared<std::byte[]>(values.size() * sizeof(float));
  std::memcpy(bytes.get(), values.data(), values.size() * sizeof(float));
  return bytes;
}

SharedBytes shared(std::shared_ptr<std::byte[]> bytes, std::size_t floats) {
  const std::span<const std::byte> all(bytes.get(), floats * sizeof(float));
  return {all, std::move(bytes)};
}

const std::byte* place_of(const Tensor& tensor) { return tensor.data(); }

TEST(SharedTensor, IsReadWhereItsBytesLie) {
  const auto bytes = bytes_of({1, 2, 3, 4});
  const Tensor tensor = Tensor::sharing({DType::f32, {2, 2}}, shared(bytes, 4)), copy = tensor;
  EXPECT_EQ(tensor.data(), bytes.get());
  EXPECT_EQ(copy.data(), bytes.get());
  EXPECT_EQ(tensor.bytes().size(), 16u);
  EXPECT_EQ(copy.as<float>()[2], 3);
  EXPECT_EQ(tensor.at(3), 4);
  EXPECT_EQ(TensorView(tensor).bytes().data(), bytes.get());
  EXPECT_EQ(place_of(Tensor(copy).reshaped({4})), bytes.get());
  EXPECT_EQ(copy.to_doubles(), (std::vector<double>{1, 2, 3, 4}));
}

TEST(SharedTensor, ChangesForNobodyElse) {
  const auto bytes = bytes_of({1, 2, 3, 4});
  const Tensor original = Tensor::sharing({DType::f32, {4}}, shared(bytes, 4));
  Tensor by_set = original, by_span = original, by_bytes = original, by_data = original;
  by_set.set(0, 7);
  by_span.as<float>()[0] = 7;
  std::memset(by_bytes.bytes().data(), 0, 4);
  std::memset(by_data.data(), 0, 4);
  EXPECT_EQ(original.to_doubles(), (std::vector<double>{1, 2, 3, 4}));
  for (const Tensor* changed : {&by_set, &by_span}) EXPECT_EQ(changed->to_doubles(), (std::vector<double>{7, 2, 3, 4}));
  for (const Tensor* changed : {&by_bytes, &by_data}) EXPECT_EQ(changed->to_doubles(), (std::vector<double>{0, 2, 3, 4}));
  EXPECT_EQ(original.data(), bytes.get());
  by_set.set(0, 1);
  EXPECT_NE(place_of(by_set), bytes.get());
  EXPECT_EQ(by_set, original);
  EXPECT_NE(by_span, original);
  EXPECT_NE(original, Tensor::sharing({DType::i32, {4}}, shared(bytes, 4)));
}

TEST(SharedTensor, KeepsTheBytesAsLongAsSomebodyReadsThem) {
  auto bytes = bytes_of({1, 2});
  const std::weak_ptr<std::byte[]> alive = bytes;
  Tensor tensor = Tensor::sharing({DType::f32, {2}}, shared(std::move(bytes), 2));
  Tensor moved = std::move(tensor);
  EXPECT_EQ(tensor.bytes().size(), 0u);  // NOLINT: what a moved-from tensor holds is what the test asks
  EXPECT_EQ(moved.at(1), 2);
  EXPECT_THROW(Tensor::sharing({DType::f32, {3}}, shared(bytes_of({1, 2}), 2)), UserError);
  moved = Tensor::scalar(DType::f32, 5);
  EXPECT_TRUE(alive.expired());
  EXPECT_EQ(moved.to_doubles(), std::vector<double>{5});
}

}  // namespace
}  // namespace gcomp
