#include "tests/layers/cases.h"

#include <cmath>

namespace gcomp::test {
namespace {

using In = const std::vector<Var>&;
using Out = std::vector<Var>;
using Name = const std::string&;

/// A layer without a name, of the first input alone.
LayerCase plain(const std::string& name, const std::function<Var(Layers&, Var)>& write) {
  return {name, [write](Layers& nn, Name, In in) -> Out { return {write(nn, in[0])}; }};
}

/// A layer with a name, of the first input alone.
LayerCase named(const std::string& name, const std::function<Var(Layers&, Name, Var)>& write) {
  return {name, [write](Layers& nn, Name n, In in) -> Out { return {write(nn, n, in[0])}; }};
}

std::vector<LayerCase> linear_cases() {
  return {
      named("linear/rank3", [](Layers& nn, Name n, Var x) { return nn.linear(n, x, 3); }),
      named("linear/no_bias", [](Layers& nn, Name n, Var x) { return nn.linear(n, x, 3, {.bias = false}); }),
      named("linear/embedding", [](Layers& nn, Name n, Var x) { return nn.embedding(n, x, 4, 3); }),
      named("linear/padding_idx", [](Layers& nn, Name n, Var x) { return nn.embedding(n, x, 4, 3, {.padding_idx = 1}); }),
      named("linear/last_padding_idx", [](Layers& nn, Name n, Var x) { return nn.embedding(n, x, 4, 3, {.padding_idx = -1}); }),
  };
}

std::vector<LayerCase> convolution_cases() {
  return {
      named("convolution/1d", [](Layers& nn, Name n, Var x) { return nn.conv1d(n, x, 3, 3); }),
      named("convolution/1d_options",
            [](Layers& nn, Name n, Var x) {
              return nn.conv1d(n, x, 6, 3, {.stride = 2, .padding = 2, .dilation = 2, .groups = 2, .bias = false});
            }),
      named("convolution/2d", [](Layers& nn, Name n, Var x) { return nn.conv2d(n, x, 3, 3, {.padding = 1}); }),
      named("convolution/2d_options",
            [](Layers& nn, Name n, Var x) {
              return nn.conv2d(n, x, 6, {3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2});
            }),
      named("convolution/depthwise", [](Layers& nn, Name n, Var x) { return nn.conv2d(n, x, 8, 3, {.groups = 4, .bias = false}); }),
      named("convolution/3d",
            [](Layers& nn, Name n, Var x) {
              return nn.conv3d(n, x, 3, {1, 2, 3}, {.stride = {1, 2, 1}, .padding = {0, 1, 1}});
            }),
      named("convolution/transpose1d", [](Layers& nn, Name n, Var x) { return nn.conv_transpose1d(n, x, 3, 3); }),
      named("convolution/transpose1d_options",
            [](Layers& nn, Name n, Var x) {
              return nn.conv_transpose1d(
                  n, x, 6, 3, {.stride = 3, .padding = 2, .output_padding = 2, .dilation = 2, .groups = 2, .bias = false});
            }),
      named("convolution/transpose2d",
            [](Layers& nn, Name n, Var x) { return nn.conv_transpose2d(n, x, 3, 4, {.stride = 2, .padding = 1}); }),
      named("convolution/transpose2d_options",
            [](Layers& nn, Name n, Var x) {
              return nn.conv_transpose2d(
                  n, x, 6, {3, 2},
                  {.stride = {2, 3}, .padding = {1, 0}, .output_padding = {1, 2}, .dilation = {2, 1}, .groups = 2});
            }),
      named("convolution/transpose3d",
            [](Layers& nn, Name n, Var x) {
              return nn.conv_transpose3d(n, x, 2, 2, {.stride = 2, .output_padding = {0, 1, 0}});
            }),
  };
}

std::vector<LayerCase> norm_cases() {
  return {
      named("norm/batch", [](Layers& nn, Name n, Var x) { return nn.batch_norm(n, x); }),
      named("norm/batch_rows", [](Layers& nn, Name n, Var x) { return nn.batch_norm(n, x, {.eps = 0.01, .momentum = 0.3}); }),
      named("norm/batch_plain", [](Layers& nn, Name n, Var x) { return nn.batch_norm(n, x, {.affine = false}); }),
      named("norm/batch_untracked", [](Layers& nn, Name n, Var x) { return nn.batch_norm(n, x, {.track_running_stats = false}); }),
      named("norm/layer", [](Layers& nn, Name n, Var x) { return nn.layer_norm(n, x); }),
      named("norm/layer_options",
            [](Layers& nn, Name n, Var x) { return nn.layer_norm(n, x, {.eps = 0.1, .bias = false, .axes = 2}); }),
      named("norm/layer_plain", [](Layers& nn, Name n, Var x) { return nn.layer_norm(n, x, {.elementwise_affine = false}); }),
      named("norm/rms", [](Layers& nn, Name n, Var x) { return nn.rms_norm(n, x); }),
      named("norm/rms_options", [](Layers& nn, Name n, Var x) { return nn.rms_norm(n, x, {.eps = 0.1, .axes = 2}); }),
      named("norm/rms_plain", [](Layers& nn, Name n, Var x) { return nn.rms_norm(n, x, {.elementwise_affine = false}); }),
      named("norm/group", [](Layers& nn, Name n, Var x) { return nn.group_norm(n, x, 2); }),
      named("norm/group_options", [](Layers& nn, Name n, Var x) { return nn.group_norm(n, x, 4, {.eps = 0.1, .affine = false}); }),
      named("norm/group_rows", [](Layers& nn, Name n, Var x) { return nn.group_norm(n, x, 2); }),
      named("norm/instance", [](Layers& nn, Name n, Var x) { return nn.instance_norm(n, x); }),
      named("norm/instance_options",
            [](Layers& nn, Name n, Var x) { return nn.instance_norm(n, x, {.eps = 0.1, .affine = true}); }),
  };
}

Out all_of(const RecurrentResult& r) { return r.cell ? Out{r.output, r.hidden, r.cell} : Out{r.output, r.hidden}; }

std::vector<LayerCase> recurrent_cases() {
  const auto deep = [](In in) {
    return RecurrentOptions{
        .num_layers = 2, .bias = false, .bidirectional = true, .hidden = in[1], .cell = in.size() > 2 ? in[2] : Var()};
  };
  return {
      {"recurrent/lstm", [](Layers& nn, Name n, In in) { return all_of(nn.lstm(n, in[0], 5)); }},
      {"recurrent/lstm_options", [deep](Layers& nn, Name n, In in) { return all_of(nn.lstm(n, in[0], 2, deep(in))); }},
      {"recurrent/lstm_both_ways", [](Layers& nn, Name n, In in) { return all_of(nn.lstm(n, in[0], 2, {.bidirectional = true})); }},
      {"recurrent/gru", [](Layers& nn, Name n, In in) { return all_of(nn.gru(n, in[0], 5)); }},
      {"recurrent/gru_options", [deep](Layers& nn, Name n, In in) { return all_of(nn.gru(n, in[0], 2, deep(in))); }},
      {"recurrent/gru_both_ways", [](Layers& nn, Name n, In in) { return all_of(nn.gru(n, in[0], 2, {.bidirectional = true})); }},
  };
}

/// Self-attention of the first input; `options` see the others.
LayerCase self_attention(const std::string& name, const std::function<AttentionOptions(In)>& options) {
  return {name,
          [options](Layers& nn, Name n, In in) -> Out { return {nn.multihead_attention(n, in[0], in[0], in[0], 2, options(in))}; }};
}

std::vector<LayerCase> attention_cases() {
  const auto cross = [](Layers& nn, Name n, In in) -> Out { return {nn.multihead_attention(n, in[0], in[1], in[2], 2)}; };
  const auto both = [](In in) { return AttentionOptions{.key_padding_mask = in[1], .attn_mask = in[2]}; };
  return {
      self_attention("attention/self", [](In) { return AttentionOptions{}; }),
      self_attention("attention/no_bias", [](In) { return AttentionOptions{.bias = false}; }),
      self_attention("attention/causal", [](In) { return AttentionOptions{.causal = true}; }),
      {"attention/cross", cross},
      {"attention/widths", cross},
      self_attention("attention/padding", [](In in) { return AttentionOptions{.key_padding_mask = in[1]}; }),
      self_attention("attention/closed", [](In in) { return AttentionOptions{.key_padding_mask = in[1]}; }),
      {"attention/mask",
       [](Layers& nn, Name n, In in) -> Out { return {nn.multihead_attention(n, in[0], in[1], in[2], 2, {.attn_mask = in[3]})}; }},
      self_attention("attention/bias", [](In in) { return AttentionOptions{.attn_mask = in[1]}; }),
      self_attention("attention/head_mask", [](In in) { return AttentionOptions{.attn_mask = in[1]}; }),
      self_attention("attention/both", [](In in) { return AttentionOptions{.causal = true, .key_padding_mask = in[1]}; }),
      self_attention("attention/both_added", both),
  };
}

std::vector<LayerCase> pooling_cases() {
  return {
      plain("pooling/max1d", [](Layers& nn, Var x) { return nn.max_pool1d(x, 2); }),
      plain("pooling/max1d_options",
            [](Layers& nn, Var x) { return nn.max_pool1d(x, 3, {.stride = 2, .padding = 1, .dilation = 2, .ceil_mode = true}); }),
      plain("pooling/max2d", [](Layers& nn, Var x) { return nn.max_pool2d(x, 2); }),
      plain("pooling/max2d_options",
            [](Layers& nn, Var x) {
              return nn.max_pool2d(x, {3, 2}, {.stride = {2, 3}, .padding = {1, 0}, .ceil_mode = true});
            }),
      plain("pooling/avg1d", [](Layers& nn, Var x) { return nn.avg_pool1d(x, 3); }),
      plain("pooling/avg1d_options",
            [](Layers& nn, Var x) {
              return nn.avg_pool1d(x, 3, {.stride = 2, .padding = 1, .ceil_mode = true, .count_include_pad = false});
            }),
      plain("pooling/avg2d", [](Layers& nn, Var x) { return nn.avg_pool2d(x, 2); }),
      plain("pooling/avg2d_options",
            [](Layers& nn, Var x) {
              return nn.avg_pool2d(x, {3, 2}, {.stride = {2, 1}, .padding = 1, .ceil_mode = true});
            }),
      plain("pooling/adaptive_avg1d", [](Layers& nn, Var x) { return nn.adaptive_avg_pool1d(x, 3); }),
      plain("pooling/adaptive_avg2d",
            [](Layers& nn, Var x) {
              return nn.adaptive_avg_pool2d(x, {2, 4});
            }),
      plain("pooling/adaptive_avg2d_one", [](Layers& nn, Var x) { return nn.adaptive_avg_pool2d(x, 1); }),
      plain("pooling/adaptive_max1d", [](Layers& nn, Var x) { return nn.adaptive_max_pool1d(x, 3); }),
      plain("pooling/adaptive_max2d",
            [](Layers& nn, Var x) {
              return nn.adaptive_max_pool2d(x, {2, 4});
            }),
      plain("pooling/adaptive_max2d_ties",
            [](Layers& nn, Var x) {
              return nn.adaptive_max_pool2d(x, {3, 2});
            }),
      plain("pooling/global_average", [](Layers& nn, Var x) { return nn.global_average_pool2d(x); }),
  };
}

LayerCase interpolated(const std::string& name, const InterpolateOptions& options) {
  return plain(name, [options](Layers& nn, Var x) { return nn.interpolate(x, options); });
}

std::vector<LayerCase> resizing_cases() {
  using Mode = InterpolateMode;
  return {
      plain("resizing/pad",
            [](Layers& nn, Var x) {
              return nn.pad(x, {1, 2, 0, 3}, {.value = 0.5});
            }),
      plain("resizing/crop",
            [](Layers& nn, Var x) {
              return nn.pad(x, {-1, 2});
            }),
      plain("resizing/reflect",
            [](Layers& nn, Var x) {
              return nn.pad(x, {2, 1, 0, 2}, {.mode = PadMode::reflect});
            }),
      plain("resizing/replicate",
            [](Layers& nn, Var x) {
              return nn.pad(x, {2, 5}, {.mode = PadMode::replicate});
            }),
      plain("resizing/circular",
            [](Layers& nn, Var x) {
              return nn.pad(x, {4, 1, 1, 0}, {.mode = PadMode::circular});
            }),
      interpolated("resizing/nearest", {.scale_factor = {2}}),
      interpolated("resizing/nearest_size", {.size = {5, 2}}),
      interpolated("resizing/nearest_scale", {.scale_factor = {1.6, 0.7}}),
      interpolated("resizing/nearest_kept", {.scale_factor = {1.3}}),
      interpolated("resizing/nearest_images", {.scale_factor = {1.3, 2.2}}),
      interpolated("resizing/nearest_volume", {.scale_factor = {2.2, 1, 1.3}}),
      interpolated("resizing/nearest_rounded", {.size = 46}),
      interpolated("resizing/linear_kept", {.scale_factor = {1.3}, .mode = Mode::linear}),
      interpolated("resizing/nearest_exact", {.size = 7, .mode = Mode::nearest_exact}),
      interpolated("resizing/nearest_exact_scale", {.scale_factor = {1.3}, .mode = Mode::nearest_exact}),
      interpolated("resizing/linear", {.size = 7, .mode = Mode::linear}),
      interpolated("resizing/linear_corners", {.size = 9, .mode = Mode::linear, .align_corners = true}),
      interpolated("resizing/linear_one", {.size = 1, .mode = Mode::linear, .align_corners = true}),
      interpolated("resizing/bilinear", {.scale_factor = {2}, .mode = Mode::linear}),
      interpolated("resizing/bilinear_scale", {.scale_factor = {1.7, 0.6}, .mode = Mode::linear}),
      interpolated("resizing/bilinear_corners", {.scale_factor = {1.7, 2}, .mode = Mode::linear, .align_corners = true}),
      interpolated("resizing/trilinear", {.size = {3, 2, 5}, .mode = Mode::linear}),
      interpolated("resizing/bicubic", {.size = {7, 3}, .mode = Mode::cubic}),
      interpolated("resizing/bicubic_scale", {.scale_factor = {1.2, 2}, .mode = Mode::cubic}),
      interpolated("resizing/bicubic_corners", {.size = {7, 9}, .mode = Mode::cubic, .align_corners = true}),
      plain("resizing/flatten", [](Layers& nn, Var x) { return nn.flatten(x); }),
      plain("resizing/flatten_some", [](Layers& nn, Var x) { return nn.flatten(x, -3, 2); }),
  };
}

std::vector<LayerCase> activation_cases() {
  return {
      plain("activation/relu", [](Layers& nn, Var x) { return nn.relu(x); }),
      plain("activation/relu6", [](Layers& nn, Var x) { return nn.relu6(x); }),
      plain("activation/leaky_relu", [](Layers& nn, Var x) { return nn.leaky_relu(x); }),
      plain("activation/elu", [](Layers& nn, Var x) { return nn.elu(x); }),
      plain("activation/selu", [](Layers& nn, Var x) { return nn.selu(x); }),
      plain("activation/celu", [](Layers& nn, Var x) { return nn.celu(x); }),
      plain("activation/gelu", [](Layers& nn, Var x) { return nn.gelu(x); }),
      plain("activation/silu", [](Layers& nn, Var x) { return nn.silu(x); }),
      plain("activation/mish", [](Layers& nn, Var x) { return nn.mish(x); }),
      plain("activation/sigmoid", [](Layers& nn, Var x) { return nn.sigmoid(x); }),
      plain("activation/log_sigmoid", [](Layers& nn, Var x) { return nn.log_sigmoid(x); }),
      plain("activation/tanh", [](Layers& nn, Var x) { return nn.tanh(x); }),
      plain("activation/softplus", [](Layers& nn, Var x) { return nn.softplus(x); }),
      plain("activation/softsign", [](Layers& nn, Var x) { return nn.softsign(x); }),
      plain("activation/hardtanh", [](Layers& nn, Var x) { return nn.hardtanh(x); }),
      plain("activation/hardsigmoid", [](Layers& nn, Var x) { return nn.hardsigmoid(x); }),
      plain("activation/hardswish", [](Layers& nn, Var x) { return nn.hardswish(x); }),
      plain("activation/glu", [](Layers& nn, Var x) { return nn.glu(x); }),
      plain("activation/leaky_relu_slope", [](Layers& nn, Var x) { return nn.leaky_relu(x, 0.3); }),
      plain("activation/elu_alpha", [](Layers& nn, Var x) { return nn.elu(x, 0.7); }),
      plain("activation/celu_alpha", [](Layers& nn, Var x) { return nn.celu(x, 0.75); }),
      plain("activation/gelu_tanh", [](Layers& nn, Var x) { return nn.gelu(x, GeluForm::tanh); }),
      plain("activation/softplus_options", [](Layers& nn, Var x) { return nn.softplus(x, {.beta = 2, .threshold = 5}); }),
      plain("activation/hardtanh_options", [](Layers& nn, Var x) { return nn.hardtanh(x, {.min_val = -2, .max_val = 0.5}); }),
      plain("activation/glu_axis", [](Layers& nn, Var x) { return nn.glu(x, 1); }),
      plain("activation/softmax", [](Layers& nn, Var x) { return nn.softmax(x); }),
      plain("activation/softmax_axis", [](Layers& nn, Var x) { return nn.softmax(x, 1); }),
      plain("activation/log_softmax", [](Layers& nn, Var x) { return nn.log_softmax(x); }),
      plain("activation/log_softmax_axis", [](Layers& nn, Var x) { return nn.log_softmax(x, 1); }),
      named("activation/prelu", [](Layers& nn, Name n, Var x) { return nn.prelu(n, x); }),
      named("activation/prelu_channels",
            [](Layers& nn, Name n, Var x) { return nn.prelu(n, x, {.num_parameters = 4, .init = 0.6}); }),
      plain("activation/dropout_none", [](Layers& nn, Var x) { return nn.dropout(x, 0); }),
  };
}

struct Family {
  const char* name;
  std::vector<LayerCase> (*cases)();
};
constexpr Family kFamilies[] = {{"linear", linear_cases},       {"convolution", convolution_cases}, {"norm", norm_cases},
                                {"recurrent", recurrent_cases}, {"attention", attention_cases},     {"pooling", pooling_cases},
                                {"resizing", resizing_cases},   {"activation", activation_cases}};

}  // namespace

std::vector<LayerCase> layer_cases(const std::string& family) {
  for (const Family& f : kFamilies)
    if (family == f.name) return f.cases();
  return {};
}

std::vector<std::string> layer_families() {
  std::vector<std::string> names;
  for (const Family& f : kFamilies) names.emplace_back(f.name);
  return names;
}

}  // namespace gcomp::test
