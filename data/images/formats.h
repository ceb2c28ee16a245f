// Formats of images with labels.
#pragma once

#include "data/format.h"
#include "data/images/decode.h"

namespace gcomp::data {

extern const Format kImagesFormat, kTarFormat, kShardFormat;

/// The option max_pixels, which all of them have.
inline constexpr OptionDef kMaxPixelsOption = OptionDef::integer("max_pixels", "178956970")
                                                  .at_least(1)
                                                  .at_most(1LL << 31)
                                                  .says("of one image; a larger one is refused before it is decoded");
static_assert(kMostPixels == 178'956'970);

/// Whether a file of this name is read as an image: .jpg, .jpeg or .png, of either case.
bool has_image_suffix(std::string_view name);

/// The type of an array of images of sizes of their own.
inline TensorType image_type() { return {DType::u8, {-1, -1, -1}}; }

}  // namespace gcomp::data
