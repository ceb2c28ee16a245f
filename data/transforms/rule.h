// What an entry of the table of transforms is, and what it is made into before rows come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "data/transforms/draws.h"
#include "data/transforms/image_in_hand.h"
#include "data/transforms/transforms.h"
#include "ir/base/definition.h"

namespace gcomp::data {

/// An image that a transform cannot work on. Names no row, as errors of decoding do, which transforms may cause.
class UnfitImage : public UserError {
 public:
  using UserError::UserError;
};

/// Of images. Immutable, so that threads share it; allocates nothing beyond what the image keeps.
class ImageTransform {
 public:
  virtual ~ImageTransform() = default;
  /// What comes of this size. Without a size: where every image gets the same, that.
  virtual std::optional<ImageSize> size_of(std::optional<ImageSize> size) const { return size; }
  /// Throws UnfitImage, and what the source throws.
  virtual void apply(ImageInHand& image, Draws& draws) const = 0;
};

/// Of the rows of one array.
class ArrayTransform {
 public:
  explicit ArrayTransform(TensorType result) : result_(std::move(result)) {}
  virtual ~ArrayTransform() = default;
  const TensorType& result() const { return result_; }
  /// Throws UserError, which names no row, for a value that it cannot take.
  virtual void apply(std::span<const std::byte> from, std::span<std::byte> to, Draws& draws) const = 0;

 private:
  TensorType result_;
};

/// Of an image and its label with those of another row.
struct MixRule {
  bool boxes = false;  ///< cutmix: a box of the other image; else a mean of both
  double alpha = 1, p = 1;
  std::string label;
  std::int64_t classes = 0;  ///< 0: as many as have names
};

struct TransformRule {
  enum class Kind : std::uint8_t {
    image,    ///< `image`
    array,    ///< `array`, of the array that the call names
    mix,      ///< MixRule
    program,  ///< the program's work: no row changes
  };

  Definition definition;
  Kind kind = Kind::image;
  bool random = false;
  bool names_array = false;                           ///< the first argument is an array
  std::span<const std::string_view> positional = {};  ///< options that may go without their names, in order
  std::string_view (*problem)(const Options&) = {};   ///< what no option alone shows; "" for none
  std::unique_ptr<ImageTransform> (*image)(const Options&) = {};
  /// Throws UserError (no name of the array in it) for rows of a type that it cannot work on.
  std::unique_ptr<ArrayTransform> (*array)(const Options&, const TensorType&) = {};
};

MixRule mix_rule(const TransformCall& call);
/// Of a standardize() that has them.
Normalization given_statistics(const TransformCall& call);
/// One number for all directions, or height and width.
ImageSize size_option(const Options& options);

extern const TransformRule kResize, kCenterCrop, kRandomCrop, kRandomResizedCrop, kHflip, kVflip, kColorJitter, kGrayscale,
    kRandomErasing, kNormalize, kMixup, kCutmix, kStandardize, kOneHot, kCast, kNoise;

}  // namespace gcomp::data
