// Folders of many small files, which are there whole or not at all.
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "ir/base/error.h"
#include "runtime/files/atomic_folder.h"
#include "tests/temporary_directory.h"

namespace gcomp::runtime {
namespace {

std::span<const std::byte> text_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(AtomicFolder, HoldsWhatSeveralThreadsWroteOnceItIsCommitted) {
  const test::TemporaryDirectory scratch;
  {
    AtomicFolder folder(scratch / "made");
    folder.make_folder("a");
    folder.make_folder("b");
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&folder, t] {
        for (int i = t; i < 100; i += 4)
          folder.write_file(concat(i % 2 == 0 ? "a/" : "b/", i), text_bytes(std::string(static_cast<std::size_t>(i), 'x')));
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_FALSE(std::filesystem::exists(scratch / "made"));
    folder.commit();
  }
  EXPECT_EQ(scratch.files(), 1);
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(test::contents(scratch / concat("made/", i % 2 == 0 ? "a/" : "b/", i)),
              std::string(static_cast<std::size_t>(i), 'x'));
}

TEST(AtomicFolder, LeavesNothingWithoutCommit) {
  const test::TemporaryDirectory scratch;
  {
    AtomicFolder folder(scratch / "made");
    folder.make_folder("a");
    folder.write_file("a/1", text_bytes("text"));
    EXPECT_THROW(folder.make_folder("a"), UserError);
    EXPECT_THROW(folder.write_file("a/1", text_bytes("other")), UserError);
    EXPECT_THROW(folder.write_file("none/1", text_bytes("text")), UserError);
  }
  EXPECT_EQ(scratch.files(), 0);
}

}  // namespace
}  // namespace gcomp::runtime
