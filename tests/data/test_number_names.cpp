// Sources that count classes and tokens by themselves, counted as another does: by their names the numbers must mean the same.
#include "data/number_names.h"
#include "tests/data/source_reading.h"

namespace gcomp::data::test {
namespace {

using Names = std::vector<std::string>;

class NumberNamesOf : public testing::Test {
 protected:
  std::unique_ptr<Source> table(const std::string& name, const std::string& rows) const {
    put(folder_ / name, "x,label\n" + rows);
    return open_spec("csv:" + (folder_ / name).string());
  }
  std::unique_ptr<Source> text(const std::string& name, const std::string& contents, const std::string& options = "") const {
    put(folder_ / name, contents);
    return open_spec("text:" + (folder_ / name).string() + options, token_input(4));
  }
  TemporaryDirectory folder_;
};

/// What the labels of all rows are called.
Names called(const Source& source) {
  const Names names = source.class_names(array_of(source, "label"));
  Names labels;
  for (std::int64_t row = 0; row < source.rows(); ++row)
    labels.push_back(names.at(static_cast<std::size_t>(integers(source, "label", row)[0])));
  return labels;
}

TEST_F(NumberNamesOf, ClassesAreThoseOfTheOther) {
  const auto whole = table("all.csv", "1,cat\n2,dog\n3,owl\n");
  auto part = table("part.csv", "4,owl\n5,dog\n6,owl\n");
  EXPECT_EQ(integers(*part, "label", 0)[0], 1);
  const auto made = numbered_as(std::move(part), number_names(*whole));
  EXPECT_EQ(made->class_names(array_of(*made, "label")), (Names{"cat", "dog", "owl"}));
  EXPECT_EQ(called(*made), (Names{"owl", "dog", "owl"}));
  EXPECT_EQ(integers(*made, "label", 0)[0], 2);
  const Tensor* memory = made->whole(array_of(*made, "label"));
  if (memory) { EXPECT_EQ(memory->at(0), 2); }
  EXPECT_EQ(row_of(*made, "x", 2).at(0), 6);
  expect_contains(made->notes().back(), {"part.csv' has 2 of the 3 classes of 'label'", "all.csv"});
}

TEST_F(NumberNamesOf, ThoseThatAreAlikeStayAsTheyAre) {
  const auto first = table("a.csv", "1,cat\n2,dog\n");
  auto second = table("b.csv", "3,dog\n4,cat\n");
  const Source* as_it_was = second.get();
  EXPECT_EQ(numbered_as(std::move(second), number_names(*first)).get(), as_it_was);
}

TEST_F(NumberNamesOf, WhatTheOtherLacksIsRefused) {
  const NumberNames names = number_names(*table("a.csv", "1,cat\n2,dog\n"));
  expect_contains(error_of([&] { numbered_as(table("b.csv", "3,dog\n4,emu\n"), names); }),
                  {"b.csv' has the class of 'label' 'emu', which '", "a.csv' does not have: that has 2, 'cat' and 'dog'"});
  const NumberNames letters = number_names(*text("a.txt", "abcabcabc"));
  expect_contains(error_of([&] { numbered_as(text("b.txt", "abxabxabx"), letters); }),
                  {"b.txt' has the token 'x', which '", "a.txt' does not have: that has 3"});
  expect_contains(error_of([&] { numbered_as(text("c.txt", "abcabcabc", ",unit=bytes"), letters); }),
                  {"c.txt' is read as bytes, '", "a.txt' as characters"});
}

// Without 'b', 'c' is the second letter.
TEST_F(NumberNamesOf, TokensAreThoseOfTheOther) {
  const auto whole = text("all.txt", "abcabcabcabc");
  const auto made = numbered_as(text("part.txt", "acacacacac"), number_names(*whole));
  EXPECT_EQ(integers(*made, "tokens", 0), (std::vector<std::int64_t>{0, 2, 0, 2}));
  EXPECT_EQ(integers(*made, "label", 0), (std::vector<std::int64_t>{2, 0, 2, 0}));
  EXPECT_EQ(made->vocabulary(), whole->vocabulary());
  EXPECT_TRUE(made->is_sequence());
}

TEST_F(NumberNamesOf, TextReadsBackAsItIs) {
  NumberNames names = number_names(*text("a.txt", "a\"\xc3\xa4\na\"\xc3\xa4\n"));
  names.classes["label"] = {"cat", "two words", "\xc3\xa9"};
  names.columns = {
      .source = "a.csv", .features = {"a", "b, c"}, .means = {{"a", 0.1}, {"b, c", -1e300}}, .classes = {{"city", {"", "Rom"}}}};
  const NumberNames read = parse_number_names(text_of(names));
  EXPECT_EQ(read.source, names.source);
  EXPECT_EQ(read.classes, names.classes);
  EXPECT_EQ(read.vocabulary, names.vocabulary);
  EXPECT_EQ(read.columns, names.columns);
  EXPECT_EQ(parse_columns(text_of(names.columns)), names.columns);
  EXPECT_EQ(text_of(KeptColumns()), "");
  expect_contains(error_of([] { parse_columns(R"({"features": 3})"); }), {"wanted lists of names and means by name"});
  EXPECT_EQ(text_of({.source = "x", .classes = {}, .vocabulary = {}}), "");
  expect_contains(error_of([] { parse_number_names("[1]"); }), {"names of numbers: "});
}

TEST_F(NumberNamesOf, ClassesWithoutAnArrayAreThoseOfAny) {
  const NumberNames names{.source = "run", .classes = {{"", {"cat", "dog", "owl"}}}, .vocabulary = {}};
  const auto made = numbered_as(table("part.csv", "1,owl\n2,cat\n"), names);
  EXPECT_EQ(integers(*made, "label", 0)[0], 2);
}

}  // namespace
}  // namespace gcomp::data::test
