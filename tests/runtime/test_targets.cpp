// The table of targets: what each backend answers.
#include <gtest/gtest.h>

#include "ir/base/error.h"
#include "runtime/backend.h"

namespace gcomp::runtime {
namespace {

TEST(Targets, EveryKindHasABackendOfItsOwn) {
  ASSERT_FALSE(backends().empty());
  EXPECT_TRUE(backends().front()->everywhere);
  for (std::size_t i = 0; i < backends().size(); ++i) {
    const Backend& backend = *backends()[i];
    EXPECT_EQ(static_cast<std::size_t>(backend.kind), i);
    EXPECT_EQ(&backend_of(Target{backend.kind, ""}), &backend);
    EXPECT_EQ(&backend_of(backend.request), &backend);
    EXPECT_TRUE(backend.binary_path && backend.compile && backend.open) << backend.name;
    EXPECT_TRUE(backend.everywhere || (backend.require && backend.require_all)) << backend.name;
    EXPECT_FALSE(backend.kernel_suffix.empty() || backend.form.empty()) << backend.name;
    EXPECT_GT(backend.run_limits.rows, 0);
    EXPECT_EQ(stored_target(static_cast<std::int64_t>(i), "a"), (Target{backend.kind, "a"}));
  }
}

TEST(Targets, AreReadAsTheyAreWritten) {
  for (const char* text : {"cpu", "cuda:sm_75", "cuda:sm_90a", "cuda:sm_120"}) EXPECT_EQ(to_string(parse_target(text)), text);
}

std::string refusal_of(std::string_view text) {
  try {
    return to_string(parse_target(text));
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
}

TEST(Targets, OthersAreRefused) {
  for (const std::string text :
       {"", "CPU", "cpu:", "cpu:sm_90", "cuda", "cuda:", "cuda:sm_", "cuda:90", "cuda:sm_90b", "rocm:gfx90a"})
    EXPECT_EQ(refusal_of(text), concat("target '", text, "' is unknown; wanted cpu, or cuda:ARCHITECTURE such as cuda:sm_90"));
  EXPECT_EQ(refusal_of("cuda:sm_50"), "target 'cuda:sm_50': gcomp needs sm_75 (Turing, 2018) or newer, such as cuda:sm_90");
  for (const std::int64_t kind : {std::int64_t{-1}, static_cast<std::int64_t>(backends().size()), std::int64_t{1} << 32})
    EXPECT_THROW(stored_target(kind, ""), UserError) << kind;
}

TEST(Targets, BinariesLieByTargetAndProgram) {
  Program program;
  program.name = "step";
  EXPECT_EQ(backend_of(program.target).binary_path(program), "cpu/step.so");
  program.target = parse_target("cuda:sm_90");
  EXPECT_EQ(backend_of(program.target).binary_path(program), "cubins/sm_90/step.cubins");
}

}  // namespace
}  // namespace gcomp::runtime
