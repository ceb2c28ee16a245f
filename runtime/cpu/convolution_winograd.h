// f32 convolutions of 3 x 3 taps that move by one position, channels last, by Winograd's F(2x2, 3x3): 16 products where the plain
// sum takes 36 multiply-adds, for all channels at once. On request alone (CallBackend::winograd): its sums are others.
//
// To first order, an element is off by at most (channels + 10) u, u = 2^-24, times the sum over channels of
// |A^T| (|G||g||G^T| * |B^T||d||B|) |A|, * by elements: a product is one chain, the transforms round twice, four and four times.
// That sum is larger than the plain one's, by up to nine times where all signs conspire, but the chains have a ninth of its length:
// docs/training.md has what both come to.
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
