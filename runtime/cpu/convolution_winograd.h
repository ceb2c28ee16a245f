// f32 convolutions of 3 x 3 taps that move by one position, channels last, by Winograd's F(2x2, 3x3): 16 products where the plain
// sum takes 36 multiply-adds, for all channels at once. On request alone (CallBackend::winograd): its sums are others.
//
// What an element of a result is off by is at most about (channels + 12) u times the sum of |inputs| |weights| over the tile's 4 x
// 4 positions, where the plain sum's bound is 9 channels u times that over 3 x 3 (u = 2^-24; the transforms add up to four inputs,
// three weights and nine products). Measured against f64: docs/training.md.
#pragma once

#include "runtime/cpu/convolution.h"

namespace gcomp::runtime::cpu {

/// Whether a call is such a convolution with enough channels and results that the transforms are paid back; its shape alone says
/// so.
bool takes_winograd(const ConvolutionCall& call);

/// The three kinds, for calls that are taken. The gradient of the input is a convolution of the output's with turned weights; that
/// of the weights is the transformed algorithm's own derivative.
std::unique_ptr<LibraryCall> make_winograd_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands);

}  // namespace gcomp::runtime::cpu
