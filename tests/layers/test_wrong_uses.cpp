// What does not fit is one UserError that names the layer, what was found and what was wanted.
#include <gtest/gtest.h>

#include <functional>

#include "frontend/layers.h"
#include "gcomp/error.h"
#include "gcomp/ops.h"

namespace gcomp::test {
namespace {

struct WrongUse {
  const char* message;  ///< a part of what must be said
  std::function<Var(Layers&, const std::function<Var(Shape)>&)> write;
};

#define GCOMP_WRONG(MESSAGE, ...)                                                                                                \
  WrongUse {                                                                                                                     \
    MESSAGE, []([[maybe_unused]] Layers& nn, [[maybe_unused]] const std::function<Var(Shape)>& x) -> Var { return __VA_ARGS__; } \
  }

const std::vector<WrongUse>& wrong_uses() {
  static const std::vector<WrongUse> uses{
      GCOMP_WRONG("layer 'a': the input is f32[], wanted floats [..., in]", nn.linear("a", x({}), 3)),
      GCOMP_WRONG("layer 'a': 0 features", nn.linear("a", x({2, 3}), 0)),
      GCOMP_WRONG("layer 'a': the ids are f32[2]", nn.embedding("a", x({2}), 3, 4)),
      GCOMP_WRONG("layer 'a': padding_idx is 3, wanted one of 3 rows",
                  nn.embedding("a", nn.constant(Tensor(DType::i64, {2})), 3, 4, {.padding_idx = 3})),
      GCOMP_WRONG("layer 'a': the input is f32[2,3,4], wanted floats [batch, channels, height, width]",
                  nn.conv2d("a", x({2, 3, 4}), 4, 3)),
      GCOMP_WRONG("layer 'a': 2 groups, which do not divide 3 input and 4 output channels",
                  nn.conv1d("a", x({2, 3, 8}), 4, 3, {.groups = 2})),
      GCOMP_WRONG("layer 'a': kernel has 3 numbers, wanted one or 2", nn.conv2d("a", x({2, 3, 8, 8}), 4, {3, 3, 3})),
      GCOMP_WRONG("layer 'a': stride is 0, wanted at least 1", nn.conv2d("a", x({2, 3, 8, 8}), 4, 3, {.stride = {1, 0}})),
      GCOMP_WRONG("whose spatial axis 1 with its padding is shorter than the kernel's reach of 5",
                  nn.conv2d("a", x({2, 3, 8, 4}), 4, 3, {.dilation = 2})),
      GCOMP_WRONG("layer 'a': output_padding is 2, wanted less than the stride 2 or the dilation 1",
                  nn.conv_transpose1d("a", x({2, 3, 8}), 4, 3, {.stride = 2, .output_padding = 2})),
      GCOMP_WRONG("layer 'a': the output's spatial axis 0 has -1 elements",
                  nn.conv_transpose1d("a", x({2, 3, 1}), 4, 3, {.padding = 2})),
      GCOMP_WRONG("layer 'a': the input is f32[3], wanted floats [batch, channels, ...]", nn.batch_norm("a", x({3}))),
      GCOMP_WRONG("layer 'a': the input is f32[2,3], wanted floats with at least the 3 axes",
                  nn.layer_norm("a", x({2, 3}), {.axes = 3})),
      GCOMP_WRONG("layer 'a': the input is f32[2,3], wanted floats with at least the 0 axes",
                  nn.rms_norm("a", x({2, 3}), {.axes = 0})),
      GCOMP_WRONG("layer 'a': 3 groups, which do not divide 4 channels", nn.group_norm("a", x({2, 4, 3}), 3)),
      GCOMP_WRONG("layer 'a': the input is f32[2,4], wanted floats [batch, channels, ...] with at least one more axis",
                  nn.instance_norm("a", x({2, 4}))),
      GCOMP_WRONG("layer 'a': 4 heads, which do not divide a width of 6",
                  nn.multihead_attention("a", x({2, 5, 6}), x({2, 5, 6}), x({2, 5, 6}), 4)),
      GCOMP_WRONG("layer 'a': the key is f32[3,5,6], wanted floats [batch, tokens, width], the query being f32[2,5,6]",
                  nn.multihead_attention("a", x({2, 5, 6}), x({3, 5, 6}), x({2, 5, 6}), 2)),
      GCOMP_WRONG("the value f32[2,4,6], wanted equally many tokens",
                  nn.multihead_attention("a", x({2, 5, 6}), x({2, 5, 6}), x({2, 4, 6}), 2)),
      GCOMP_WRONG("layer 'a': the key_padding_mask is f32[5,2], wanted bool or floats [batch, keys]",
                  nn.multihead_attention("a", x({2, 5, 6}), x({2, 5, 6}), x({2, 5, 6}), 2, {.key_padding_mask = x({5, 2})})),
      GCOMP_WRONG("layer 'a': the attn_mask is f32[2,5,5], wanted bool or floats [queries, keys]",
                  nn.multihead_attention("a", x({2, 5, 6}), x({2, 5, 6}), x({2, 5, 6}), 2, {.attn_mask = x({2, 5, 5})})),
      GCOMP_WRONG("dropout: p is 1.5, wanted 0 to 1",
                  nn.multihead_attention("a", x({2, 5, 6}), x({2, 5, 6}), x({2, 5, 6}), 2, {.dropout = 1.5})),
      GCOMP_WRONG("layer 'a': the input is f32[2,5], wanted floats [batch, time, in]", nn.lstm("a", x({2, 5}), 4).output),
      GCOMP_WRONG("layer 'a': 0 layers of hidden size 4", nn.gru("a", x({2, 5, 3}), 4, {.num_layers = 0}).output),
      GCOMP_WRONG("layer 'a': the initial hidden state is f32[2,4], wanted f32[1,2,4]",
                  nn.lstm("a", x({2, 5, 3}), 4, {.hidden = x({2, 4})}).output),
      GCOMP_WRONG("layer 'a': an initial cell state is given, which a GRU does not have",
                  nn.gru("a", x({2, 5, 3}), 4, {.cell = x({1, 2, 4})}).output),
      GCOMP_WRONG("max_pool2d: the input is f32[2,3,8], wanted floats [batch, channels, height, width]",
                  nn.max_pool2d(x({2, 3, 8}), 2)),
      GCOMP_WRONG("max_pool1d: padding is 2, wanted at most half of the window's 3",
                  nn.max_pool1d(x({2, 3, 8}), 3, {.padding = 2})),
      GCOMP_WRONG("avg_pool1d: the input is f32[2,3,2], whose spatial axis 0 with its padding is shorter than a window of 3",
                  nn.avg_pool1d(x({2, 3, 2}), 3)),
      GCOMP_WRONG("adaptive_avg_pool2d: size is 0, wanted at least 1", nn.adaptive_avg_pool2d(x({2, 3, 4, 4}), 0)),
      GCOMP_WRONG("pad: 3 counts for f32[2,3]", nn.pad(x({2, 3}), {1, 2, 3})),
      GCOMP_WRONG("pad: 3 and 0 elements around axis 1 of f32[2,3]: reflection needs less than there are",
                  nn.pad(x({2, 3}), {3, 0}, {.mode = PadMode::reflect})),
      GCOMP_WRONG("pad: -2 and -2 elements around axis 1 of f32[2,3], which has fewer", nn.pad(x({2, 3}), {-2, -2})),
      GCOMP_WRONG("interpolate: neither size nor scale_factor is given", nn.interpolate(x({2, 3, 4}), {})),
      GCOMP_WRONG("interpolate: both size and scale_factor are given",
                  nn.interpolate(x({2, 3, 4}), {.size = 3, .scale_factor = {2}})),
      GCOMP_WRONG("interpolate: scale_factor is 0.1, which makes 0 elements of 4",
                  nn.interpolate(x({2, 3, 4}), {.scale_factor = {0.1}})),
      GCOMP_WRONG("interpolate: align_corners is set, which only linear and cubic have",
                  nn.interpolate(x({2, 3, 4}), {.size = 3, .align_corners = true})),
      GCOMP_WRONG("interpolate: the input is f32[2,3,4], wanted [batch, channels, height, width] for cubic",
                  nn.interpolate(x({2, 3, 4}), {.size = 3, .mode = InterpolateMode::cubic})),
      GCOMP_WRONG("flatten: axes 2 to 1 of f32[2,3,4]", nn.flatten(x({2, 3, 4}), 2, 1)),
      GCOMP_WRONG("softmax: axis 2 of f32[2,3], wanted one of 2", nn.softmax(x({2, 3}), 2)),
      GCOMP_WRONG("glu: axis 1 of f32[2,3] has no two halves", nn.glu(x({2, 3}))),
      GCOMP_WRONG("layer 'a': 4 slopes for an input f32[2,3], wanted one, or one for each of 3 channels",
                  nn.prelu("a", x({2, 3}), {.num_parameters = 4})),
      GCOMP_WRONG("hardtanh: min_val is 2, wanted at most the max_val 1", nn.hardtanh(x({2}), {.min_val = 2})),
      GCOMP_WRONG("softplus: beta is 0", nn.softplus(x({2}), {.beta = 0})),
      GCOMP_WRONG("dropout: p is -0.5, wanted 0 to 1", nn.dropout(x({2}), -0.5)),
      GCOMP_WRONG("the model has two parameters named 'a.weight'", nn.linear("a", nn.linear("a", x({2, 3}), 4), 5)),
  };
  return uses;
}

#undef GCOMP_WRONG

TEST(WrongUses, AreOneClearError) {
  for (const WrongUse& use : wrong_uses()) {
    const auto write = [&](Layers& nn) {
      int inputs = 0;
      nn.output("y",
                use.write(nn, [&](Shape shape) { return nn.input("x" + std::to_string(inputs++), DType::f32, std::move(shape)); }));
    };
    try {
      frontend::instantiate({write, 0}, {.training = true});
      ADD_FAILURE() << "accepted: " << use.message;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(use.message), std::string::npos)
          << "found:  " << error.what() << "\nwanted: " << use.message;
    }
  }
}

/// What is given out may be an input, a parameter, or given out before.
TEST(Outputs, AreValuesOfTheirOwn) {
  const frontend::ImportedModel model = frontend::instantiate({[](Layers& nn) {
                                                                 Var x = nn.input("x", DType::f32, {2}), y = nn.relu(x);
                                                                 nn.output("same", x);
                                                                 nn.output("parameter", nn.parameter("p", {2}, {1}));
                                                                 nn.output("once", y);
                                                                 nn.output("twice", y);
                                                               },
                                                               0},
                                                              {});
  EXPECT_EQ(model.graph.inputs().at(0)->name, "x");
  EXPECT_EQ(model.graph.states().at(0).value->name, "p");
  EXPECT_EQ(model.outputs, (std::vector<std::string>{"same", "parameter", "once", "twice"}));
  const auto twice = [](Layers& nn) {
    for (int i = 0; i < 2; ++i) nn.output("y", nn.relu(nn.input("x" + std::to_string(i), DType::f32, {2})));
  };
  EXPECT_THROW(frontend::instantiate({twice, 0}, {}), UserError);
}

TEST(WrongUses, OneRowHasNoVarianceToTrainOn) {
  const auto write = [](Layers& nn) { nn.output("y", nn.batch_norm("a", nn.input("x", DType::f32, {1, 3}))); };
  EXPECT_NO_THROW(frontend::instantiate({write, 0}, {}));
  try {
    frontend::instantiate({write, 0}, {.training = true});
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("layer 'a': the input is f32[1,3]: one value per channel"), std::string::npos)
        << error.what();
  }
}

/// What instantiating a definition throws.
std::string refusal_of(const std::function<void(Layers&)>& write) {
  try {
    frontend::instantiate({write, 0}, {});
  } catch (const UserError& error) { return error.what(); }
  return "accepted";
}

Var input_of(Layers& nn) { return nn.input("x", DType::f32, {2, 4}); }

/// A Var of a model that is being written is none of another that is written within that.
TEST(VarsOfAnotherModel, AreNamedWhereTheirModelLives) {
  const std::pair<std::string, std::function<void(Layers&, Var own, Var other)>> uses[] = {
      {"node 'add': op 'add': ", [](Layers& nn, Var own, Var other) { nn.linear("add", own, 3), nn.output("y", own + other); }},
      {"op 'maximum': ", [](Layers& nn, Var own, Var other) { nn.output("y", ops::maximum(own, other)); }},
      {"node 'a': op 'reshape': ",
       [](Layers& nn, Var, Var other) {
         nn.output("y", nn.linear("a", ops::reshape(other, {1, 2, 4}), 3));
       }},
      {"op 'concat': ",
       [](Layers& nn, Var own, Var other) {
         nn.output("y", ops::concat({own, other}, 0));
       }},
      {"output 'y': ", [](Layers& nn, Var, Var other) { nn.output("y", other); }},
      {"output 'y': ", [](Layers& nn, Var, Var other) { nn.output("y", nn.relu(other)); }},
  };
  for (const auto& [where, use] : uses) {
    std::string found;
    const std::string outer = refusal_of([&](Layers& nn) {
      Var x = input_of(nn), twice = x * 2.0;
      found = refusal_of([&](Layers& inner) { use(inner, input_of(inner), twice); });
      nn.output("y", nn.linear("fc", x, 3));
    });
    EXPECT_EQ(outer, "accepted");
    EXPECT_EQ(found.find(where), 0u) << where << ": " << found;
    EXPECT_NE(found.find("f32["), std::string::npos) << found;
    EXPECT_NE(found.find("is a Var of another model, whose definition runs too; wanted one of this model"), std::string::npos)
        << found;
  }
}

/// Nor may it be looked at when its model is gone, which each use below would do.
TEST(VarsOfAnotherModel, AreNamedWhereTheirModelIsGone) {
  Var kept;
  EXPECT_EQ(refusal_of([&](Layers& nn) {
              Var x = input_of(nn);
              kept = x * 2.0;
              nn.output("y", x + kept);
            }),
            "accepted");
  const std::function<void(Layers&, Var)> uses[] = {
      [&](Layers& nn, Var x) { nn.output("y", x + kept); },
      [&](Layers& nn, Var x) { nn.output("y", kept + x); },
      [&](Layers& nn, Var) { nn.output("y", kept); },
      [&](Layers& nn, Var) { nn.output("y", nn.linear("fc", kept, 3)); },
      [&](Layers& nn, Var) { nn.output("y", nn.relu(kept)); },
      [&](Layers& nn, Var) { nn.output("y", nn.gelu(kept)); },
      [&](Layers& nn, Var x) { nn.output("y", ops::select(x > ops::like(x, 0), x, kept)); },
      [&](Layers& nn, Var x) {
        nn.output("y", ops::apply("add", {x, kept})[0]);
      },
      [&](Layers& nn, Var x) {
        nn.output("y", ops::concat({x, kept}, 0));
      },
      [&](Layers& nn, Var x) { nn.output("y", ops::reshape(x, kept.shape())); },
  };
  for (const auto& use : uses) {
    const std::string found = refusal_of([&](Layers& nn) { use(nn, input_of(nn)); });
    EXPECT_EQ(found.find("a Var is used after the run of the definition that made it, which has ended"), 0u) << found;
  }
  EXPECT_THROW(static_cast<void>(kept.rank()), UserError);
  EXPECT_NE(refusal_of([](Layers& nn) { nn.output("y", input_of(nn) + Var()); }), "accepted");
  EXPECT_NE(refusal_of([](Layers& nn) { nn.output("y", Var()); }).find("stands for no value"), std::string::npos);
}

}  // namespace
}  // namespace gcomp::test
