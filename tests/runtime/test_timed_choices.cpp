// The text of timed choices: back and forth, what is none of it, and how two differ.
#include <gtest/gtest.h>

#include "ir/base/error.h"
#include "runtime/timed_choices.h"

namespace gcomp::runtime {
namespace {

const TimedChoices kChoices{.of = "a GPU, a library", .chosen = {{"f32 1x2x3", "00ff"}, {"f32 4x5x6 epilogue 0", "plain"}}};

std::string refusal(const std::string& text) {
  try {
    parse_timed_choices(text);
  } catch (const UserError& error) { return error.what(); }
  return "";
}

TEST(TimedChoices, GoIntoATextAndBack) {
  EXPECT_EQ(to_text(kChoices), "timed choices 1\na GPU, a library\nf32 1x2x3\t00ff\nf32 4x5x6 epilogue 0\tplain\n");
  EXPECT_EQ(parse_timed_choices(to_text(kChoices)), kChoices);
  const TimedChoices none{.of = "a GPU", .chosen = {}};
  EXPECT_EQ(parse_timed_choices(to_text(none)), none);
  EXPECT_EQ(to_text({}), "");
  EXPECT_EQ(parse_timed_choices(""), TimedChoices{});
}

TEST(TimedChoices, WhatIsNoneOfThemIsRefused) {
  EXPECT_EQ(refusal("other 1\nof\n"), "timed choices: they begin with 'other 1', wanted 'timed choices 1'");
  EXPECT_EQ(refusal("timed choices 2\nof\n"), "timed choices: they have version 2, this gcomp reads 1");
  EXPECT_EQ(refusal("timed choices 1\n"), "timed choices: a line without an end");
  EXPECT_EQ(refusal("timed choices 1\nof"), "timed choices: a line without an end");
  EXPECT_EQ(refusal("timed choices 1\n\n"), "timed choices: they do not say of which device");
  for (const char* line : {"product", "\tchoice", "product\t", "product\tchoice\tmore"})
    EXPECT_EQ(refusal(concat("timed choices 1\nof\n", line, "\n")),
              concat("timed choices: no product and its choice, '", line, "'"));
  EXPECT_EQ(refusal("timed choices 1\nof\np\t1\np\t2\n"), "timed choices: twice of 'p'");
}

TEST(TimedChoices, DifferWhereSomethingIsComputedOtherwise) {
  const std::string before = to_text(kChoices);
  EXPECT_EQ(difference(before, kChoices), "");
  EXPECT_EQ(difference("", {}), "");
  TimedChoices now = kChoices;
  now.chosen["f32 7x8x9"] = "01";
  EXPECT_EQ(difference(before, now), "") << "of a program that was not loaded before";
  now.chosen["f32 1x2x3"] = "plain";
  EXPECT_EQ(difference(before, now), "1 of 2 could not be taken");
  now.chosen.erase("f32 4x5x6 epilogue 0");
  EXPECT_EQ(difference(before, now), "2 of 2 could not be taken");
  now.of = "another GPU";
  EXPECT_EQ(difference(before, now), "they were made on a GPU, a library, and this is another GPU");
  EXPECT_EQ(difference(before, {}), "they were made on a GPU, a library, and nothing is timed here");
  EXPECT_EQ(difference("", kChoices), "none are kept there");
}

}  // namespace
}  // namespace gcomp::runtime
