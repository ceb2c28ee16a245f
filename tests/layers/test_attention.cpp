// Attention of the layers is the one op that targets with a kernel for it take, whatever its masks.
#include <gtest/gtest.h>

#include "frontend/layers.h"
#include "passes/attention/match_attention.h"

namespace gcomp::test {
namespace {

struct Masked {
  const char* name;
  bool causal, padding;
};

int matches_of(const Masked& masked, double dropout) {
  const auto write = [&](Layers& nn) {
    Var x = nn.input("x", DType::f32, {2, 5, 6});
    AttentionOptions options{.dropout = dropout, .causal = masked.causal};
    if (masked.padding) options.key_padding_mask = nn.input("hidden", DType::boolean, {2, 5});
    nn.output("y", nn.multihead_attention("attention", x, x, x, 2, options));
  };
  frontend::ImportedModel model = frontend::instantiate({write, 0}, {.training = true});
  return passes::match_attention(model.graph);
}

TEST(LayersAttention, IsRecognisedAsOneOp) {
  for (const Masked& masked :
       {Masked{"none", false, false}, {"causal", true, false}, {"padding", false, true}, {"both", true, true}}) {
    EXPECT_EQ(matches_of(masked, 0), 1) << masked.name;
    EXPECT_EQ(matches_of(masked, 0.5), 1) << masked.name << ", with dropout between softmax and product";
  }
}

}  // namespace
}  // namespace gcomp::test
