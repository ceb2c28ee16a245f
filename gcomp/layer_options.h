// Options of the layers of layers.h, with PyTorch's names and defaults.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "gcomp/optional.h"
#include "gcomp/var.h"

namespace gcomp {

/// Sizes along the spatial axes: one number for all of them, or one for each, as in {3, 1}.
class PerAxis {
 public:
  PerAxis() = default;  ///< not given
  PerAxis(std::int64_t all) : values_{all} {}
  PerAxis(std::initializer_list<std::int64_t> each) : values_(each) {}
  const std::vector<std::int64_t>& values() const { return values_; }

 private:
  std::vector<std::int64_t> values_;
};

struct LinearOptions {
  bool bias = true;
};

struct ConvolutionOptions {
  PerAxis stride = 1;
  PerAxis padding = 0;  ///< zeros at both ends
  PerAxis dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
};

struct TransposedConvolutionOptions {
  PerAxis stride = 1;
  PerAxis padding = 0;         ///< cut off at both ends
  PerAxis output_padding = 0;  ///< more at the end; less than stride or dilation
  PerAxis dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
};

struct EmbeddingOptions {
  /// The row that starts as zeros and gets no gradient; negative ones count from the end.
  Optional<std::int64_t> padding_idx = {};
};

struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;            ///< weight of the batch in the running statistics
  bool affine = true;               ///< weight and bias
  bool track_running_stats = true;  ///< without, the batch's statistics are taken in inference too
};
struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;  ///< weight and bias
  bool bias = true;                ///< beside the weight
  std::int64_t axes = 1;           ///< how many of the last axes are normalised together
};
struct RmsNormOptions {
  Optional<double> eps = {};       ///< without, the machine epsilon of the values' type
  bool elementwise_affine = true;  ///< weight
  std::int64_t axes = 1;           ///< how many of the last axes are normalised together
};
struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true;  ///< weight and bias, one for each channel
};
struct InstanceNormOptions {
  double eps = 1e-5;
  bool affine = false;  ///< weight and bias, one for each channel
};

struct AttentionOptions {
  bool bias = true;     ///< of all four projections
  double dropout = 0;   ///< of the attention weights, in training
  bool causal = false;  ///< query i sees keys 0 to i
  /// [batch, keys]: bool, where true hides the key from all queries, or floats that are added to the scores.
  Var key_padding_mask = {};
  /// The same of queries by keys, [queries, keys] or [batch * heads, queries, keys].
  Var attn_mask = {};
};

struct RecurrentOptions {
  std::int64_t num_layers = 1;
  bool bias = true;
  double dropout = 0;  ///< of the output of each layer but the last, in training
  bool bidirectional = false;
  /// Initial states, [directions * num_layers, batch, hidden], layer by layer; without them zeros. The cell is the LSTM's alone.
  Var hidden = {}, cell = {};
};
struct RecurrentResult {
  Var output;        ///< [batch, time, directions * hidden] of the last layer, the reverse direction behind the other
  Var hidden, cell;  ///< the last states, [directions * num_layers, batch, hidden]; the cell is the LSTM's alone
};

struct MaxPoolOptions {
  PerAxis stride = {};  ///< without, the window's size
  PerAxis padding = 0;  ///< at both ends; never the maximum
  PerAxis dilation = 1;
  bool ceil_mode = false;  ///< a last window may overhang the end
};
struct AveragePoolOptions {
  PerAxis stride = {};            ///< without, the window's size
  PerAxis padding = 0;            ///< zeros at both ends
  bool ceil_mode = false;         ///< a last window may overhang the end
  bool count_include_pad = true;  ///< padding counts in the mean; what overhangs never does
};

/// What padding repeats: a value, the elements next to the edge, the edge, or the other end.
enum class PadMode : std::uint8_t { constant, reflect, replicate, circular };
struct PadOptions {
  PadMode mode = PadMode::constant;
  double value = 0;
};

enum class InterpolateMode : std::uint8_t { nearest, nearest_exact, linear, cubic };
struct InterpolateOptions {
  PerAxis size = {};                      ///< of the result; this or scale_factor
  std::vector<double> scale_factor = {};  ///< one for all spatial axes, or one for each
  InterpolateMode mode = InterpolateMode::nearest;
  bool align_corners = false;  ///< linear and cubic: the corners of input and result meet
};

/// With the error function, or with tanh in its place.
enum class GeluForm : std::uint8_t { exact, tanh };
struct SoftplusOptions {
  double beta = 1;
  double threshold = 20;  ///< where x * beta is above, the result is x
};
struct HardtanhOptions {
  double min_val = -1, max_val = 1;
};
struct PreluOptions {
  std::int64_t num_parameters = 1;  ///< 1, or the size of axis 1
  double init = 0.25;
};

}  // namespace gcomp
