#include "runtime/cuda/kernel_images.h"

#include <algorithm>
#include <charconv>

#include "ir/base/error.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/files/sha256.h"

namespace gcomp::runtime::cuda {
namespace {

// This line, then the SHA-256 of all that follows and a newline. Then lines "ARCHITECTURE COUNT" and, for each image, "TEXT_SHA256
// BYTES"; then the images one after the other.
constexpr std::string_view kMagic = "gcomp cubins 1\n";
constexpr std::size_t kDigest = 64;

std::string_view as_text(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

/// Takes the front of `text` up to the character `end`, which is dropped.
std::string_view take(std::string_view& text, char end) {
  const std::size_t at = text.find(end);
  check_user(at != text.npos, "its list of kernels ends early");
  const std::string_view front = text.substr(0, at);
  text.remove_prefix(at + 1);
  return front;
}

std::size_t take_number(std::string_view& text, char end) {
  const std::string_view digits = take(text, end);
  std::size_t number = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  check_user(error == std::errc() && stop == digits.data() + digits.size() && !digits.empty(), "its list of kernels is damaged");
  return number;
}

}  // namespace

const KernelImage* KernelImages::find(std::string_view text_digest) const {
  const auto found = std::find_if(images.begin(), images.end(), [&](const KernelImage& i) { return i.text_digest == text_digest; });
  return found == images.end() ? nullptr : &*found;
}

std::string kernel_digest(const Program& program, const Kernel& kernel) {
  const std::string source = kernel_source(program, kernel);
  return sha256(std::as_bytes(std::span(source)));
}

std::vector<std::byte> pack(const KernelImages& images) {
  std::string list = concat(images.architecture, " ", images.images.size(), "\n");
  for (const KernelImage& image : images.images) list += concat(image.text_digest, " ", image.image.size(), "\n");
  const auto head = std::as_bytes(std::span(list));
  std::vector<std::byte> body(head.begin(), head.end());
  for (const KernelImage& image : images.images) body.insert(body.end(), image.image.begin(), image.image.end());
  const std::string front = concat(kMagic, sha256(body), "\n");
  const auto front_bytes = std::as_bytes(std::span(front));
  body.insert(body.begin(), front_bytes.begin(), front_bytes.end());
  return body;
}

KernelImages unpack(std::span<const std::byte> bytes) {
  std::string_view text = as_text(bytes);
  check_user(text.substr(0, kMagic.size()) == kMagic && text.size() > kMagic.size() + kDigest, "it holds no cubins of this gcomp");
  text.remove_prefix(kMagic.size());
  const std::string_view digest = take(text, '\n');
  check_user(sha256(bytes.subspan(bytes.size() - text.size())) == digest, "its contents do not match their hash");
  KernelImages images;
  images.architecture = static_cast<int>(take_number(text, ' '));
  const std::size_t count = take_number(text, '\n');
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < count; ++i) {
    images.images.push_back({.text_digest = std::string(take(text, ' ')), .image = {}});
    sizes.push_back(take_number(text, '\n'));
  }
  for (std::size_t i = 0; i < count; ++i) {
    check_user(sizes[i] <= text.size(), "its last kernels are cut off");
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    images.images[i].image.assign(begin, begin + sizes[i]);
    text.remove_prefix(sizes[i]);
  }
  check_user(text.empty(), "it has ", text.size(), " bytes too many");
  return images;
}

}  // namespace gcomp::runtime::cuda
