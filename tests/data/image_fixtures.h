// What Pillow makes of small images (tests/fixtures/data/record_images.py).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "data/image.h"
#include "gcomp/error.h"
#include "gcomp/tensor.h"

namespace gcomp::data {

/// The arrays of tests/fixtures/data/FILE.
std::vector<NamedTensor> fixture_arrays(const std::string& file);
const Tensor& array_of(const std::vector<NamedTensor>& arrays, const std::string& name);
/// [height, width] or [height, width, 3] bytes.
Image image_of(const Tensor& pixels);
/// The bytes of an image file of images.npz.
std::vector<std::byte> fixture_image(const std::string& name);
/// What differs, for a message: "" for equal images.
std::string difference(const Image& image, const Image& wanted);
/// The box's part of a whole image.
Image cut(const Image& image, const Box& box);
/// The message of the UserError that the call throws; "" where it throws none.
template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const UserError& error) { return error.what(); }
  return "";
}
/// Smooth and noisy parts.
Image test_picture(int height, int width, int channels);

}  // namespace gcomp::data
