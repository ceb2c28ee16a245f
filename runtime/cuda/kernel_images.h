// The cubins of a program as one block of bytes, for an artifact: which architecture, which kernels, made from which text. Damage
// is found by a hash before any of it reaches a GPU.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/program.h"

namespace gcomp::runtime::cuda {

struct KernelImage {
  std::string text_digest;  ///< kernel_digest() of the kernel that it was made from
  std::vector<std::byte> image;

  bool operator==(const KernelImage&) const = default;
};

struct KernelImages {
  int architecture = 0;  ///< 90 for sm_90
  std::vector<KernelImage> images;

  /// Null where no image was made from this text.
  const KernelImage* find(std::string_view text_digest) const;

  bool operator==(const KernelImages&) const = default;
};

/// SHA-256 of all that the compiler sees of a kernel.
std::string kernel_digest(const Program& program, const Kernel& kernel);

std::vector<std::byte> pack(const KernelImages& images);
/// Throws UserError saying what is damaged.
KernelImages unpack(std::span<const std::byte> bytes);

}  // namespace gcomp::runtime::cuda
