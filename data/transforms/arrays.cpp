// Transforms of the rows of one array.
#include <cmath>
#include <cstring>

#include "data/transforms/rule.h"
#include "ir/base/dtype.h"

namespace gcomp::data {
namespace {

double read_element(DType dtype, std::span<const std::byte> bytes, std::size_t i) {
  return load_as_double(dtype, bytes.data(), static_cast<std::int64_t>(i));
}

/// The bits of an integer or bool, its sign extended: digits of 64 bits that a double has not.
std::uint64_t read_integer(DType dtype, std::span<const std::byte> bytes, std::size_t i) {
  const std::size_t size = size_of(dtype);
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes.data() + i * size, size);
  const std::size_t rest = 64 - 8 * size;
  return is_signed_integer(dtype) ? static_cast<std::uint64_t>(static_cast<std::int64_t>(bits << rest) >> rest) : bits;
}

class OneHot final : public ArrayTransform {
 public:
  OneHot(const TensorType& from, std::int64_t classes)
      : ArrayTransform(result_of(from, classes)), dtype_(from.dtype), classes_(classes) {}
  void apply(std::span<const std::byte> from, std::span<std::byte> to, Draws&) const override {
    std::memset(to.data(), 0, to.size());
    const std::size_t labels = from.size() / size_of(dtype_);
    for (std::size_t i = 0; i < labels; ++i) {
      const double label = read_element(dtype_, from, i);
      check_user(label >= 0 && label < static_cast<double>(classes_), "one_hot: ", static_cast<std::int64_t>(label),
                 " is no class of ", classes_);
      const float one = 1;
      std::memcpy(to.data() + (i * static_cast<std::size_t>(classes_) + static_cast<std::size_t>(label)) * sizeof one, &one,
                  sizeof one);
    }
  }

 private:
  static TensorType result_of(const TensorType& from, std::int64_t classes) {
    check_user(is_integer(from.dtype), "one_hot: rows are ", to_string(from), ", wanted integers");
    TensorType made{DType::f32, from.shape};
    made.shape.push_back(classes);
    return made;
  }

  DType dtype_;
  std::int64_t classes_;
};

class Cast final : public ArrayTransform {
 public:
  Cast(const TensorType& from, DType to) : ArrayTransform({to, from.shape}), from_(from.dtype) {}
  void apply(std::span<const std::byte> from, std::span<std::byte> to, Draws&) const override {
    const DType wanted = result().dtype;
    const bool integers = !is_float(from_) && is_integer(wanted);  // these wrap: the low bytes
    for (std::size_t i = 0; i < from.size() / size_of(from_); ++i) {
      if (!integers) {
        store_from_double(wanted, to.data(), static_cast<std::int64_t>(i), read_element(from_, from, i));
        continue;
      }
      const std::uint64_t value = read_integer(from_, from, i);
      std::memcpy(to.data() + i * size_of(wanted), &value, size_of(wanted));
    }
  }

 private:
  DType from_;
};

class Noise final : public ArrayTransform {
 public:
  Noise(const TensorType& type, double std) : ArrayTransform(type), std_(std) {
    check_user(is_float(type.dtype), "noise: rows are ", to_string(type), ", wanted floats; cast(array, f32) before it");
  }
  void apply(std::span<const std::byte> from, std::span<std::byte> to, Draws& draws) const override {
    const DType dtype = result().dtype;
    for (std::size_t i = 0; i < from.size() / size_of(dtype); ++i)
      store_from_double(dtype, to.data(), static_cast<std::int64_t>(i), read_element(dtype, from, i) + std_ * draws.normal());
  }

 private:
  double std_;
};

constexpr std::string_view kClassesFirst[] = {"classes"}, kDtypeFirst[] = {"dtype"}, kStdFirst[] = {"std"};
constexpr OptionDef kOneHotOptions[] = {
    OptionDef::integer("classes", "").at_least(1).at_most(1 << 20).says("the new last dimension"),
};
constexpr OptionDef kCastOptions[] = {
    OptionDef::word("dtype", "", "f64|f32|f16|bf16|i8|i16|i32|i64|u8|u16|u32|u64|bool").says("the new element type"),
};
constexpr OptionDef kNoiseOptions[] = {
    OptionDef::number("std", "").at_least(0).says("deviation, in what the array has before standardize()"),
};

}  // namespace

constinit const TransformRule kOneHot{
    .definition = {"one_hot", "class numbers become f32[..., classes], 1 at the class", kOneHotOptions, "array"},
    .kind = TransformRule::Kind::array,
    .names_array = true,
    .positional = kClassesFirst,
    .array = [](const Options& o, const TensorType& type) -> std::unique_ptr<ArrayTransform> {
      return std::make_unique<OneHot>(type, o.integer("classes"));
    }};
constinit const TransformRule kCast{
    .definition = {"cast", "elements of another type: floats become integers cut to their range, integers keep their low bytes",
                   kCastOptions, "array"},
    .kind = TransformRule::Kind::array,
    .names_array = true,
    .positional = kDtypeFirst,
    .array = [](const Options& o, const TensorType& type) -> std::unique_ptr<ArrayTransform> {
      return std::make_unique<Cast>(type, *parse_dtype(o.word("dtype")));
    }};
constinit const TransformRule kNoise{.definition = {"noise", "adds normal noise to floats", kNoiseOptions, "array"},
                                     .kind = TransformRule::Kind::array,
                                     .random = true,
                                     .names_array = true,
                                     .positional = kStdFirst,
                                     .array = [](const Options& o, const TensorType& type) -> std::unique_ptr<ArrayTransform> {
                                       return std::make_unique<Noise>(type, o.number("std"));
                                     }};

}  // namespace gcomp::data
