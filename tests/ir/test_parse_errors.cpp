// Broken text ends in one UserError that names the line and column, what was found and what was wanted.
#include <gtest/gtest.h>

#include <random>

#include "ir/text/parse.h"

namespace gcomp::ir {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse(text, {.file = "f.gir"});
    return "no error";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::invalid);
    return error.what();
  }
}

/// Puts `line` as third line of a sound graph, with %x: f32[4] and the state %w before it.
std::string with_line(const std::string& line) {
  return "graph @g(%x: f32[4]) -> () {\n  state %w: f32[4] parameter\n" + line + "\n}\n";
}

struct TextCase {
  const char* line;
  const char* error;  ///< from the line number on, without the excerpt
};

void PrintTo(const TextCase& c, std::ostream* out) { *out << c.line; }

class ParseError : public testing::TestWithParam<TextCase> {};

TEST_P(ParseError, names_line_column_and_reason) {
  const std::string found = error_of(with_line(GetParam().line));
  EXPECT_EQ(found.substr(0, found.find('\n')), std::string("f.gir:") + GetParam().error);
}

INSTANTIATE_TEST_SUITE_P(
    Lines, ParseError,
    testing::Values(
        TextCase{"  %y = rleu %x", "3:8: unknown op 'rleu'; did you mean 'relu'?"},
        TextCase{"  %y = relu %xx", "3:13: no value %xx is defined above; did you mean 'x'?"},
        TextCase{"  %y = relu", "3:8: relu: found 0 operands, wanted 1"},
        TextCase{"  %y = add %x", "3:8: add: found 1 operands, wanted 2 (operands %x: f32[4])"},
        TextCase{"  %y = relu %x : f32[5]", "3:18: found type f32[5], but relu gives f32[4]"},
        TextCase{"  %y = relu %x : f23[4]", "3:18: found 'f23', wanted a type such as f32[64,784]; did you mean 'f32'?"},
        TextCase{"  %y = relu %x : f32[4,-1]", "3:24: dimension -1 is negative"},
        TextCase{"  %y = relu %x : f32[4611686018427387904,4]", "3:18: shape [4611686018427387904x4] has more than 2^48 elements"},
        TextCase{"  %y = relu %x : f32[4], f32[4]", "3:16: found 2 types, wanted 1"},
        TextCase{"  %x = relu %x", "3:3: %x is defined twice"}, TextCase{"  %y, %y = relu %x", "3:3: %y is defined twice"},
        TextCase{"  %y, %z = relu %x", "3:3: relu has 1 results, found 2 names"},
        TextCase{"  relu %x", "3:3: relu has 1 results, found 0 names"},
        TextCase{"  %y = reduce_sum %x", "3:8: reduce_sum: attribute 'axes' is missing (operands %x: f32[4])"},
        TextCase{"  %y = reduce_sum %x {axis=[0]}",
                 "3:23: reduce_sum has no attribute 'axis', it has 'axes'; did you mean 'axes'?"},
        TextCase{"  %y = reduce_sum %x {axes=0}", "3:28: found '0', wanted '[' before a list"},
        TextCase{"  %y = reduce_sum %x {axes=[0], axes=[0]}", "3:33: attribute 'axes' is given twice"},
        TextCase{"  %y = reduce_sum %x {axes=[9223372036854775808]}", "3:29: an integer of more than 64 bits, wanted an integer"},
        TextCase{"  %y = cast %x {to=f99}", "3:20: found 'f99', wanted a dtype"},
        TextCase{"  %y = full {dtype=f32, shape=[2], value=1e999}", "3:42: the number 1e999 does not fit a double"},
        TextCase{"  %y = full {dtype=u8, shape=[2], value=-1}", "3:8: full: value is -1, wanted 0 to 255"},
        TextCase{"  %y = full {dtype=i8, shape=[2], value=0.5}", "3:8: full: value is 0.5, wanted -128 to 127"},
        TextCase{"  %y = full {dtype=bool, shape=[2], value=2}", "3:8: full: value is 2, wanted 0 or 1"},
        TextCase{"  %y = exp _", "3:8: exp: operand 0 is absent, wanted a value (operands _)"},
        TextCase{"  %y = matmul %x, %w {transpose_a=1}", "3:35: found '1', wanted true or false"},
        TextCase{"  %y = constant {value=i64[2] [1, 2, 3]}", "3:24: found 3 elements, wanted 2 for i64[2]"},
        TextCase{"  %y = constant {value=u8[2] [1, 256]}", "3:34: 256 is no u8"},
        TextCase{"  %y = constant {value=f32[1000000000000] 0x\"00\"}", "3:43: the data does not fill f32[1000000000000]"},
        TextCase{"  %y = constant {value=u8[2] 0x\"00}", "3:35: hexadecimal data does not end with '\"'"},
        TextCase{"  %y = constant {value=f32[9] <elided>}",
                 "3:31: the data of this constant was left out when the text was printed"},
        TextCase{"  %\"y = relu %x", "3:4: the quoted name or text does not end on its line, wanted a result"},
        TextCase{"  %\"\\q\" = relu %x", "3:5: unknown escape, wanted \\\" \\\\ \\n \\t or \\xHH"},
        TextCase{"  state %s: f32[2] weight",
                 "3:20: unknown role 'weight' of a state, wanted 'parameter', 'running_statistic', 'optimizer', 'counter' and "
                 "'scratch'"},
        TextCase{
            "  %y = pad %x {low=[9223372036854775807], high=[9223372036854775807]}",
            "3:8: pad: axis 0 of f32[4] has no size with 9223372036854775807 and 9223372036854775807 more (operands %x: f32[4])"},
        TextCase{"  %y = unslice %x {starts=[0], steps=[9223372036854775807], shape=[9]}",
                 "3:8: unslice: axis 0 of f32[4] leaves [9] (operands %x: f32[4])"},
        TextCase{"  update %x, %w", " update %x, %w: %x is no state"},
        TextCase{"  %y = kernel %x", "4:1: a kernel needs results and their types, as in %y = kernel %x : f32[4] {"}));

struct KernelCase {
  const char* body;
  const char* error;
};
void PrintTo(const KernelCase& c, std::ostream* out) { *out << c.body; }
class KernelError : public testing::TestWithParam<KernelCase> {};

/// The body stands on line 4, at column 1, in a kernel over i:4, j:2 that must write %y: f32[4].
TEST_P(KernelError, names_line_column_and_reason) {
  const std::string found =
      error_of(with_line(std::string("  %y = kernel %x : f32[4] {  axes i:4, j:2\n") + GetParam().body + "\n  }"));
  EXPECT_EQ(found.substr(0, found.find('\n')), std::string("f.gir:") + GetParam().error);
}

INSTANTIATE_TEST_SUITE_P(
    Bodies, KernelError,
    testing::Values(
        KernelCase{"t[i]: f32 = %x[i]", "6:1: the kernel writes no %y"}, KernelCase{"t[k]: f32 = %x[i]", "4:3: unknown axis 'k'"},
        KernelCase{"t[j,i]: f32 = %x[i]", "4:1: the axes of 't' are not in their declared order"},
        KernelCase{"t[i]: f32 = %z[i]", "4:13: %z is no operand of this kernel"},
        KernelCase{"t[i]: f32 = %x[i,i]", "4:13: found 2 indices, wanted 1"},
        KernelCase{"t[i]: f32 = operand3[i]", "4:13: the kernel has 1 operands"},
        KernelCase{"t[i]: f32 = epx(%x[i])", "4:13: 'epx' is neither a statement above nor a pointwise op; did you mean 'exp'?"},
        KernelCase{"t[i]: f32 = reduce_sum(%x[i])", "4:23: found '(', wanted '[' with the axes of reduce_sum"},
        KernelCase{"t[i]: f32 = exp(%x[i], %x[i])", "4:13: exp takes 1 arguments, found 2"},
        KernelCase{"t[i]: f32 = cast(%x[i])", "4:17: found '(', wanted the dtype of the cast, as in cast<f32>(x)"},
        KernelCase{"t[i]: f32 = (1 + 2)", "4:14: nothing here tells the dtype of this literal; write it as in f32(1)"},
        KernelCase{"t[i]: f32 = (%x[i] ^ %x[i])", "4:20: found '^', wanted '+', '-', '*', '/' or ')'"},
        KernelCase{"t[i]: f32 = %x[i*j]", "4:18: an index is multiplied and divided by integers only"},
        KernelCase{"t[i]: f32 = %x[i / 0]", "4:20: an index is divided by 0, wanted a positive integer"},
        KernelCase{"t[i]: f32 = %x[i*4611686018427387903*4]", "4:18: the index leaves the range of 62 bits"},
        KernelCase{"t[i]: f32 = (0 <= i < 3 ? %x[i])", "4:32: found ')', wanted ':' between the branches"},
        KernelCase{"t[i]: f32 = scan exp(%x[i])", "4:18: found 'exp', wanted a reduction after 'scan'"},
        KernelCase{"t[i]: f32 = %x[i]\nt[i]: f32 = t", "5:1: 't' is defined twice"},
        KernelCase{"t[i]: f32 = %x[i]\n%y[i] = t\n%y[i] = t", "6:1: %y is written twice"},
        KernelCase{"t[i]: f32 = %x[i]\n%y[i] = u", "5:9: an output stores a statement; 'u' is none"},
        KernelCase{"t[i]: f32 = %x[i]\n%z[i] = t", "5:1: %z is no result of this kernel"},
        KernelCase{"t[i]: f32 = %x[i]\nresult1[i] = t", "5:1: the kernel has 1 results"},
        // What the verifier finds.
        KernelCase{"t[i]: f32 = %x[j]\n%y[i] = t",
                   " %y = kernel %x: t0: 'operand0[j]' uses an axis that the statement does not loop over"},
        KernelCase{"t[i]: f64 = %x[i]\n%y[i] = t", " %y = kernel %x: output 0: stores f64 in f32[4]"},
        KernelCase{"t[i]: f32 = %x[<%x[i] : 4>]\n%y[i] = t",
                   " %y = kernel %x: t0: an index is looked up as f32, wanted an integer"},
        KernelCase{"t[i]: f32 = %x[i]\n%y[i + 1] = t", " %y = kernel %x: output 0: index 'i + 1' leaves dimension 0 of f32[4]"}));

TEST(ParseErrors, show_the_line_with_a_mark_under_the_column) {
  EXPECT_EQ(error_of(with_line("  %y = rleu %x  // a comment")),
            "f.gir:3:8: unknown op 'rleu'; did you mean 'relu'?\n    %y = rleu %x  // a comment\n         ^");
}

TEST(ParseErrors, name_the_roles_of_inputs_and_of_outputs) {
  const auto first_line = [](const std::string& text) {
    const std::string found = error_of(text);
    return found.substr(0, found.find('\n'));
  };
  EXPECT_EQ(
      first_line("graph @g(%x: f32[4] lable) -> () {}"),
      "f.gir:1:21: unknown role 'lable' of an input, wanted 'label', 'rows', 'learning_rate', 'momentum' and 'shard'; did you "
      "mean 'label'?");
  EXPECT_EQ(first_line("graph @g(%x: f32[]) -> (%x label) {}"),
            "f.gir:1:28: unknown role 'label' of an output, wanted 'loss', 'gradient', 'loss_scale', 'skipped', 'evaluated' and "
            "'gradient_norm'");
  EXPECT_EQ(first_line("graph @g(%x: i64[]) -> (%x loss) {}"), "f.gir: output 'x' is i64[], the role loss wants a float scalar");
}

TEST(ParseErrors, show_control_characters_as_question_marks) {
  EXPECT_EQ(error_of("graph @g() \x1b[31m"),
            "f.gir:1:12: found '?', wanted '->' and the outputs after the inputs\n  graph @g() ?[31m\n             ^");
}

TEST(ParseErrors, of_whole_files) {
  auto expect = [](const std::string& text, const std::string& error) {
    EXPECT_EQ(error_of(text).substr(0, error.size() + 1), error + "\n");
  };
  expect("", "f.gir:1:1: found the end of the text, wanted 'graph @name(...) -> (...) {'");
  expect("graph @g() -> () {\n", "f.gir:1:19: found the end of the text, wanted an op");
  expect("graph @g() -> (%y) {\n}\n", "f.gir:1:16: no value %y is defined above");
  expect("graph @g() -> () {\n}\nmore", "f.gir:3:1: found 'more' after the graph, wanted the end of the text");
}

TEST(ParseErrors, lines_count_from_where_the_text_stands_in_its_file) {
  try {
    parse("graph @g() -> () {\n  %y = relu\n}", {.file = "f.gir", .first_line = 11});
    FAIL();
  } catch (const UserError& error) { EXPECT_EQ(std::string(error.what()).substr(0, 12), "f.gir:12:8: "); }
}

TEST(ParseErrors, deep_nesting_is_refused) {
  const std::string deep = std::string(100'000, '(') + "%x[i]" + std::string(100'000, ')');
  const std::string found = error_of(with_line("  %y = kernel %x : f32[4] { axes i:4\n t[i]: f32 = " + deep + "\n %y[i] = t }"));
  EXPECT_NE(found.find("terms are nested more than 300 deep"), std::string::npos) << found;
}

TEST(ParseErrors, no_mutation_of_a_sound_text_ends_in_anything_but_a_user_error) {
  const std::string sound = R"(graph @g(%x: f32[4,3], %i: i64[4]) -> (%l, %g) {
  state %w: f32[3,2] parameter
  %z = matmul %x, %w : f32[4,2] @"fc1"
  %c = constant {value=f32[2] [0.1, -inf]} : f32[2]
  %l, %g = kernel %z, %i : f32[], f32[9,2] {
    axes i:4, j:2
    t0[i]: f32 = reduce_max[j] %z[i,j]
    let s0 = exp((%z[i,(j + 2) % 2] - t0))
    t1: f32 = reduce_sum[i,j] (0 <= i - 1 < 3 && 0 <= j < 1 ? s0 : 0)
    t2[i,j]: f32 = scan reduce_sum[j] exclusive select(less(%z[i,j], 1), s0, 0.5)
    %l = t1
    %g[<%i[i] : 9>,j] += t2
  }
  update %w, %w
}
)";
  ASSERT_EQ(error_of(sound), "no error");
  std::mt19937 random(1);
  const std::string bits = "{}[]()<>%@:=,.\"\\0123456789-+*/?&iztxw \n";
  int broken = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string text = sound;
    for (unsigned edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0: text.erase(at, 1 + random() % 5); break;
        case 1: text.insert(at, 1, bits[random() % bits.size()]); break;
        default: text[at] = bits[random() % bits.size()];
      }
    }
    try {
      parse(text);
    } catch (const UserError&) { ++broken; } catch (const std::exception& error) {
      FAIL() << error.what() << "\nin\n" << text;
    }
  }
  EXPECT_GT(broken, 10'000);
}

}  // namespace
}  // namespace gcomp::ir
