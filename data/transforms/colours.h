// Pillow's arithmetic of colours on bytes, which torchvision's ColorJitter uses: ImageEnhance and the conversions to L and HSV.
#pragma once

#include "data/image.h"

namespace gcomp::data {

/// Factors of 1 change nothing; 0 gives black, the grey of the mean, and grey.
void adjust_brightness(Image& image, double factor);
void adjust_contrast(Image& image, double factor);
void adjust_saturation(Image& image, double factor);
/// `turn` is in [-0.5, 0.5] of the circle; grey images stay.
void adjust_hue(Image& image, double turn);
/// Three channels become equal.
void make_grey(Image& image);
/// To 1 or 3 channels, which it may have already.
void convert_channels(const Image& from, int channels, Image& to);

}  // namespace gcomp::data
