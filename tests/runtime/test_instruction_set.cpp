#include <gtest/gtest.h>

#include "ir/base/error.h"
#include "runtime/instruction_set.h"

namespace gcomp::runtime {
namespace {

TEST(InstructionSet, IsChosenByName) {
  EXPECT_EQ(parse_instruction_set("baseline"), InstructionSet::baseline);
  EXPECT_EQ(parse_instruction_set("avx2"), InstructionSet::avx2);
  EXPECT_EQ(parse_instruction_set("avx512"), InstructionSet::avx512);
  EXPECT_EQ(parse_instruction_set("amx"), InstructionSet::amx);
  for (const char* wrong : {"", "AVX2", "avx", "avx2 "}) EXPECT_THROW(parse_instruction_set(wrong), UserError) << wrong;
}

TEST(InstructionSet, IsNeverWiderThanTheProcessors) {
  EXPECT_EQ(usable_instruction_set({}, InstructionSet::avx2), InstructionSet::avx2);
  EXPECT_EQ(usable_instruction_set(InstructionSet::baseline, InstructionSet::avx2), InstructionSet::baseline);
  EXPECT_EQ(usable_instruction_set(InstructionSet::avx2, InstructionSet::avx2), InstructionSet::avx2);
  EXPECT_EQ(usable_instruction_set(InstructionSet::avx512, InstructionSet::amx), InstructionSet::avx512);
  try {
    usable_instruction_set(InstructionSet::avx512, InstructionSet::avx2);
    FAIL() << "no error";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.code(), ExitCode::no_device);
    EXPECT_STREQ(error.what(),
                 "instruction set avx512 was asked for, and this processor has AVX2 at most; ask for avx2 or for none");
  }
}

}  // namespace
}  // namespace gcomp::runtime
