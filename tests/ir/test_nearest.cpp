// Names in messages.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ir/base/nearest.h"

namespace gcomp {
namespace {

TEST(Nearest, OfManyNamesTheFirstAreShown) {
  std::vector<std::string> names{"a", "b", "c"};
  EXPECT_EQ(first_of_many(names), "a, b, c");
  names.emplace_back("d");
  EXPECT_EQ(first_of_many(names), "a, b, c and 1 other");
  names.emplace_back("e");
  EXPECT_EQ(first_of_many(names), "a, b, c and 2 others");
}

}  // namespace
}  // namespace gcomp
