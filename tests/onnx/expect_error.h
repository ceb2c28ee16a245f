// Expects a UserError whose message contains given words.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "ir/base/error.h"

namespace gcomp::tests {

inline void expect_error(const std::function<void()>& act, const std::vector<std::string>& words,
                         ExitCode code = ExitCode::invalid) {
  try {
    act();
  } catch (const UserError& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    for (const std::string& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << "no '" << word << "' in: " << error.what();
    return;
  }
  ADD_FAILURE() << "no error was thrown, wanted one with '" << words.at(0) << "'";
}

}  // namespace gcomp::tests
