// The op table: every op of gcomp by name. The definitions lie in the headers beside this one, by family, and are compiled
// once, in table.cpp: whoever names an op includes this header alone.
#pragma once

#include <span>
#include <string_view>

#include "ir/op.h"

namespace gcomp::ir {
namespace ops {

// structure.h
extern const OpDef kConstant, kFull, kUpdate, kKernel, kMultiKernel, kProduct;
// pointwise.h
extern const OpDef kAdd, kSub, kMul, kDiv, kNeg, kAbs, kSign, kRelu, kMaximum, kMinimum, kTruncatedRemainder, kFlooredRemainder,
    kFloor, kCeil, kRound, kDetach, kSelect, kCast;
// elementary.h
extern const OpDef kExp, kExpm1, kLog, kLog1p, kPow, kSqrt, kRsqrt, kTanh, kSigmoid, kSoftplus, kErf, kSin, kCos, kTan, kAsin,
    kAcos, kAtan, kSinh, kCosh, kAsinh, kAcosh, kAtanh;
// logic.h
extern const OpDef kLess, kLessEqual, kEqual, kIsNan, kIsInf, kAnd, kOr, kXor, kNot, kBitAnd, kBitOr, kBitXor, kBitNot, kShiftLeft,
    kShiftRight;
// reduce.h
extern const OpDef kReduceSum, kReduceMax, kReduceMin, kReduceProduct, kArgMax, kArgMin;
// contract.h
extern const OpDef kMatmul, kConvolution, kConvolutionInputGradient, kConvolutionWeightGradient;
// view.h
extern const OpDef kBroadcast, kReshape, kTranspose, kSlice, kUnslice, kPad, kConcat;
// window.h
extern const OpDef kWindow, kWindowSum, kMaxPool;
// index.h
extern const OpDef kIota, kGather, kScatterAdd, kCumulativeSum, kCumulativeProduct;
// random.h
extern const OpDef kPhiloxUniform, kRandomUniform;
// composite.h
extern const OpDef kSoftmax, kLogSoftmax, kBatchNorm, kLayerNorm, kCrossEntropy, kBinaryCrossEntropy, kGradientBarrier;
// attention.h
extern const OpDef kAttention, kAttentionGradient;
// square_sums.h
extern const OpDef kBarrier;
extern const OpDef kSquareSums;
// collective.h
extern const OpDef kAllToAll, kAllGather, kBroadcastFrom, kReduceScatter, kAllReduce, kBucket, kUnbucket;
// lock_step.h
extern const OpDef kShardGather, kShardSum, kLockStepSum;

extern const std::span<const OpDef* const> kTable;

}  // namespace ops

/// Null for an unknown name.
const OpDef* find_op(std::string_view name);

}  // namespace gcomp::ir
