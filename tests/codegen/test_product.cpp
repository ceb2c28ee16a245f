// What the library's epilogues are recognised by, and the law of products.
#include <gtest/gtest.h>

#include "codegen/cuda/library_epilogue.h"
#include "codegen/target.h"
#include "ir/product.h"
#include "ir/text/parse.h"
#include "ir/verify.h"

namespace gcomp::ir {
namespace {

std::string product(const std::string& maps, const std::string& type = "f32", const std::string& results = "%y : f32[8,6]") {
  std::string text =
      "graph @g(%x: T[8,4], %w: T[4,6], %b: T[6], %z: T[8,6]) -> (%y) {\n  RESULTS = product %x, %w, %b, %z : TYPES {\n" +
      ("    axes i:8, j:6, k:4\n    t0[i,j]: T = reduce_sum[k] (%x[i,k] * %w[k,j])\n" + maps) + "  }\n}\n";
  const std::size_t colon = results.find(" : ");
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{"RESULTS", results.substr(0, colon)}, {"TYPES", results.substr(colon + 3)}})
    text.replace(text.find(from), from.size(), to);
  for (std::size_t at; (at = text.find("T[")) != text.npos;) text.replace(at, 1, type);
  for (std::size_t at; (at = text.find(": T ")) != text.npos;) text.replace(at + 2, 1, type);
  return text;
}

std::optional<codegen::cuda::LibraryEpilogue> known(const std::string& text) {
  const Graph graph = parse(text);
  EXPECT_EQ(find_violations(graph), std::vector<std::string>()) << text;
  const Node& node = *graph.nodes()[0];
  return codegen::cuda::library_epilogue(*node.nest, types_of(node.operands), types_of(node.results));
}

using Epilogue = runtime::EpilogueKind;

TEST(LibraryEpilogue, ABias) {
  const auto found = known(product("    t1[i,j]: T = (t0 + %b[j])\n    %y[i,j] = t1\n"));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, Epilogue::bias);
  EXPECT_EQ(found->bias, 2);
  EXPECT_FALSE(found->aux);
  EXPECT_FALSE(known(product("    t1[i,j]: T = (t0 - %b[j])\n    %y[i,j] = t1\n")));
  EXPECT_FALSE(known(product("    t1[i,j]: T = (t0 + %z[i,j])\n    %y[i,j] = t1\n"))) << "a residual is no bias";
  EXPECT_FALSE(known(product("    t1[i,j]: T = (t0 + %b[j])\n    %y[i,j] = t1\n", "f64", "%y : f64[8,6]"))) << "none in f64";
}

constexpr const char* kSpellings[] = {
    "(a * ((tanh(((a + (((a * a) * a) * 0.044715)) * 0.7978846)) + 1) * 0.5))",
    "((0.5 * a) * (1 + tanh((0.7978846 * (a * (1 + (0.044715 * (a * a))))))))",
    "(a * sigmoid((1.5957691 * (a + (0.044715 * ((a * a) * a))))))",
};
constexpr const char* kOthers[] = {
    "(a * ((erf((a * 0.70710677)) + 1) * 0.5))",
    "(a * sigmoid((1.702 * a)))",
    "(a * ((tanh(((a + (((a * a) * a) * 0.0447)) * 0.7978846)) + 1) * 0.5))",
    "(relu(a) * ((tanh(((a + (((a * a) * a) * 0.044715)) * 0.7978846)) + 1) * 0.5))",
    "relu(a)",
    "tanh(a)",
};

std::string over(std::string term, const std::string& operand) {
  for (std::size_t at = 0; (at = term.find('a', at)) != term.npos; ++at) {
    const bool word =
        (at > 0 && isalpha(static_cast<unsigned char>(term[at - 1]))) || isalpha(static_cast<unsigned char>(term[at + 1]));
    if (!word) term.replace(at, 1, operand), at += operand.size();
  }
  return term;
}

TEST(LibraryEpilogue, GeluInEachSpelling) {
  for (const char* spelling : kSpellings) {
    const auto plain = known(product("    t1[i,j]: T = " + over(spelling, "t0") + "\n    %y[i,j] = t1\n"));
    ASSERT_TRUE(plain) << spelling;
    EXPECT_EQ(plain->kind, Epilogue::gelu);
    EXPECT_FALSE(plain->bias || plain->aux);
    const auto biased = known(product("    t1[i,j]: T = " + over(spelling, "(t0 + %b[j])") + "\n    %y[i,j] = t1\n"));
    ASSERT_TRUE(biased) << spelling;
    EXPECT_EQ(biased->bias, 2);
    const std::string both = "    t1[i,j]: T = (t0 + %b[j])\n    t2[i,j]: T = " + over(spelling, "t1") + "\n";
    for (const bool first : {true, false}) {
      const auto kept =
          known(product(both + (first ? "    %y[i,j] = t2\n    %p[i,j] = t1\n" : "    %p[i,j] = t1\n    %y[i,j] = t2\n"), "f32",
                        first ? "%y, %p : f32[8,6], f32[8,6]" : "%p, %y : f32[8,6], f32[8,6]"));
      ASSERT_TRUE(kept) << spelling;
      EXPECT_EQ(kept->result, first ? 0 : 1);
      EXPECT_EQ(kept->aux, first ? 1 : 0);
    }
  }
}

TEST(LibraryEpilogue, NothingElseIsGelu) {
  for (const char* other : kOthers)
    EXPECT_FALSE(known(product("    t1[i,j]: T = " + over(other, "t0") + "\n    %y[i,j] = t1\n"))) << other;
  EXPECT_FALSE(known(product(
      "    t1[i,j]: T = (t0 + %b[j])\n    t2[i,j]: T = " + over(kSpellings[0], "t1") + "\n    %y[i,j] = t2\n    %p[i,j] = t0\n",
      "f32", "%y, %p : f32[8,6], f32[8,6]")))
      << "what is kept lacks the bias";
}

TEST(LibraryEpilogue, TheGradientOfGelu) {
  const std::string t = "tanh((0.7978846 * (%z[i,j] * (1 + (0.044715 * (%z[i,j] * %z[i,j]))))))";
  const std::string maps = "    t1[i,j]: T = " + t +
                           "\n    t2[i,j]: T = (0.5 * ((1 + t1) + (%z[i,j] * ((1 - (t1 * t1)) * (0.7978846 * (1 + (0.134145 * "
                           "(%z[i,j] * %z[i,j]))))))))\n    t3[i,j]: T = ";
  const auto found = known(product(maps + "(t0 * t2)\n    %y[i,j] = t3\n"));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, Epilogue::gelu_gradient);
  EXPECT_EQ(found->aux, 3);
  EXPECT_FALSE(known(product(maps + "((t0 * t2) + t2)\n    %y[i,j] = t3\n")));
  EXPECT_FALSE(known(product(maps + "(t0 + t2)\n    %y[i,j] = t3\n")));
}

TEST(Product, ItsLawIsChecked) {
  const std::string sound = product("    t1[i,j]: T = relu(t0)\n    %y[i,j] = t1\n");
  EXPECT_EQ(find_violations(parse(sound)), std::vector<std::string>());
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = sound;
    text.replace(text.find(from), from.size(), to);
    try {
      parse(text);
      return std::string();
    } catch (const UserError& error) {
      const std::string what = error.what();
      return what.substr(what.rfind(": ") + 2);
    }
  };
  EXPECT_EQ(broken("(%x[i,k] * %w[k,j])", "(%w[k,j] * %x[i,k])"),
            "statement 0 is not the sum of products of the first two operands");
  EXPECT_EQ(broken("t1[i,j]: f32 = relu(t0)", "t1[i,j]: f32 = reduce_max[k] (t0 * %x[i,k])"),
            "t1 is no map over the product's elements");
  EXPECT_EQ(broken("%y[i,j] = t1", "%y[i,5 - j] = t1"), "result 0 is not stored element by element");
}

/// The product of x, stored [k, m], and w, and the sum of one of them.
std::string bias_gradient(const std::string& sum, const std::string& result, std::int64_t n = 6, const std::string& type = "f32") {
  const std::string text =
      concat("graph @g(%x: ", type, "[4,8], %w: ", type, "[4,", n, "]) -> (%y, %s) {\n  %y, %s = product %x, %w ",
             "{transpose_a=true} : ", type, "[8,", n, "], ", type, result, " {\n    axes i:8, j:", n, ", k:4\n",
             "    t0[i,j]: ", type, " = reduce_sum[k] (%x[k,i] * %w[k,j])\n    ", sum, "    %y[i,j] = t0\n");
  return text + (result == "[8]" ? "    %s[i] = t1\n  }\n}\n" : "    %s[j] = t1\n  }\n}\n");
}

TEST(LibraryEpilogue, ABiasGradient) {
  const auto of_a = known(bias_gradient("t1[i]: f32 = reduce_sum[k] %x[k,i]\n", "[8]"));
  ASSERT_TRUE(of_a);
  EXPECT_EQ(of_a->kind, Epilogue::bias_gradient_a);
  EXPECT_EQ(of_a->result, 0);
  EXPECT_EQ(of_a->bias, 1);
  const auto of_b = known(bias_gradient("t1[j]: f32 = reduce_sum[k] %w[k,j]\n", "[6]"));
  ASSERT_TRUE(of_b);
  EXPECT_EQ(of_b->kind, Epilogue::bias_gradient_b);
  EXPECT_FALSE(known(bias_gradient("t1[j]: f32 = reduce_sum[k] %w[k,j]\n", "[1]", 1))) << "a single element";
  EXPECT_FALSE(known(bias_gradient("t1[j]: f64 = reduce_sum[k] %w[k,j]\n", "[6]", 6, "f64"))) << "none in f64";
  const Graph across = parse(R"(graph @g(%x: f32[8,4], %w: f32[4,6]) -> (%y, %s) {
    %y, %s = product %x, %w : f32[8,6], f32[8] {
      axes i:8, j:6, k:4
      t0[i,j]: f32 = reduce_sum[k] (%x[i,k] * %w[k,j])
      t1[i]: f32 = reduce_sum[k] %x[i,k]
      %y[i,j] = t0
      %s[i] = t1
    } })");
  const Node& node = *across.nodes()[0];
  EXPECT_FALSE(codegen::cuda::library_epilogue(*node.nest, types_of(node.operands), types_of(node.results)))
      << "k lies side by side";
}

// Beside a large product the library's sum was measured to cost more than a kernel that reads its operand again.
TEST(LibraryEpilogue, TheSumOfALargeOperandIsAKernelOfItsOwn) {
  const TargetInfo target = codegen::target_info({runtime::TargetKind::cuda, "sm_90"});
  const Attributes attributes{{"transpose_a", true}, {"transpose_b", false}};
  const auto computes = [&](std::int64_t rows, std::int64_t columns, int summed) {
    const TensorType a{DType::bf16, {rows, 768}}, b{DType::bf16, {rows, columns}};
    const TensorType gradient{DType::bf16, {summed == 0 ? 768 : columns}};
    return target.computes_epilogue(bias_gradient_nest(a, b, attributes, summed), {a, b},
                                    {{DType::bf16, {768, columns}}, gradient});
  };
  EXPECT_TRUE(computes(4096, 768, 1));
  EXPECT_FALSE(computes(32768, 768, 1));
  EXPECT_TRUE(computes(32768, 64, 1)) << "the other operand does not count";
  EXPECT_FALSE(computes(32768, 64, 0));
}

TEST(Product, TheLawOfABiasGradientIsChecked) {
  const auto violation = [](const std::string& sum, const std::string& result) {
    try {
      parse(bias_gradient(sum, result));
      return std::string();
    } catch (const UserError& error) {
      const std::string what = error.what();
      return what.substr(what.rfind(": ") + 2);
    }
  };
  EXPECT_EQ(violation("t1[i]: f32 = reduce_sum[k] %x[k,i]\n", "[8]"), "");
  EXPECT_EQ(violation("t1[i]: f32 = reduce_max[k] %x[k,i]\n", "[8]"), "it is not the product that sums operand 0 over k");
  EXPECT_EQ(violation("t1[j]: f32 = reduce_sum[k] %w[3 - k,j]\n", "[6]"), "it is not the product that sums operand 1 over k");
  EXPECT_EQ(violation("t1[i]: f32 = reduce_sum[k] %x[k,i]\n    t2[i,j]: f32 = relu(t0)\n", "[8]"),
            "it is not the product that sums operand 0 over k");
  EXPECT_EQ(violation("t1[i]: f32 = reduce_sum[k] (%x[k,i] * 2)\n", "[8]"), "t1 is no map over the product's elements");
}

}  // namespace
}  // namespace gcomp::ir
