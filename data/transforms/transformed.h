// Rows of fixed types from a source whose images have sizes of their own: decoded, transformed, in the layout that is wanted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "data/source.h"
#include "data/transforms/transforms.h"

namespace gcomp::data {

struct TransformSettings {
  /// What fetch() does; without it, evaluation_form() of the list.
  std::optional<TransformList> evaluation = {};
  /// Rows that mixup and cutmix draw partners from, such as those of the training part of a split: how many, and which is the n-th.
  /// Without it, all.
  std::int64_t partners = 0;
  std::function<std::int64_t(std::int64_t)> partner = {};
};

/// fetch() gives the evaluation form of a row, fetch_in() that of training, as a pure function of (seed, epoch, row).
///
/// Images are those arrays that the source has as images, and rows u8[H,W], u8[C,H,W] and u8[H,W,C] (C is 1 or 3) that are wanted
/// as inputs, where a transform is of images. They come out as u8: [C,H,W]; [H,W,C] where the wanted row's last dimension is 1 or 3
/// and its first is not; [H,W] or [H*W] where the wanted row has no channels. Without a wanted row, as they were, and [C,H,W] where
/// the source has images of sizes of their own. Grey becomes three equal channels and colour grey where that is wanted.
///
/// normalize() and standardize() change no row: the program does them (program_forms()).
///
/// Throws UserError where a transform names no array, or one of a type that it cannot work on; where images differ in size from
/// what is wanted, naming the first, if nothing in the list gives them a size.
std::unique_ptr<Source> transformed(std::unique_ptr<Source> source, const TransformList& list,
                                    std::span<const WantedArray> wanted = {}, TransformSettings settings = {});

}  // namespace gcomp::data
