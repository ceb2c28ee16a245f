// The search for NVIDIA's libraries: its order, and a reason for each candidate that was not taken.
#include <gtest/gtest.h>

#include <map>

#include "runtime/cuda/libraries.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::runtime::cuda {
namespace {

using test::TemporaryDirectory;

void make_file(const std::filesystem::path& path) {
  std::filesystem::create_directories(path.parent_path());
  test::put(path, "no library");
}

TEST(CudaLibraries, TriesPlacesInTheirOrder) {
  TemporaryDirectory folder;
  LibrarySearch search;
  search.usual_places = false;
  search.cuda_home = folder / "cuda";
  search.conda_prefix = folder / "conda";
  search.python_prefixes = {folder / "venv"};
  make_file(folder / "cuda/lib64/libnvrtc.so.12");
  make_file(folder / "conda/lib/libnvrtc.so.13");
  make_file(folder / "venv/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  make_file(folder / "venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  make_file(folder / "venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13");
  std::vector<std::string> tried;
  for (const LibraryCandidate& c : library_candidates(LibraryKind::nvrtc, search)) tried.push_back(c.origin + " " + c.path);
  const std::string root = folder.path().string();
  EXPECT_EQ(tried, (std::vector<std::string>{
                       "loader libnvrtc.so.13", "loader libnvrtc.so.12", "loader libnvrtc.so",
                       "CUDA_HOME " + root + "/cuda/lib64/libnvrtc.so.12", "conda " + root + "/conda/lib/libnvrtc.so.13",
                       "pip " + root + "/venv/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
                       "pip " + root + "/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13"}));
}

TEST(CudaLibraries, AnExplicitPathIsTheOnlyCandidate) {
  TemporaryDirectory folder;
  LibrarySearch search;
  search.explicit_of(LibraryKind::nvrtc) = folder / "mine.so";
  const LibraryResult result = find_library(LibraryKind::nvrtc, search);
  EXPECT_FALSE(result.library);
  ASSERT_EQ(result.rejected.size(), 1u);
  EXPECT_EQ(result.rejected[0].origin, "given path");
  const std::string path = (folder / "mine.so").string();
  EXPECT_EQ(result.description(LibraryKind::nvrtc),
            "NVRTC was not found; tried " + path + " (given path: cannot open shared object file: No such file or directory)");
}

TEST(CudaLibraries, KeepsTheReasonOfEachRejection) {
  TemporaryDirectory folder;
  make_file(folder / "libcudnn.so.9");
  LibrarySearch search;
  search.explicit_of(LibraryKind::cudnn) = folder.path();
  const LibraryResult result = find_library(LibraryKind::cudnn, search);
  ASSERT_EQ(result.rejected.size(), 1u);
  EXPECT_NE(result.rejected[0].reason.find("file too short"), std::string::npos) << result.rejected[0].reason;

  // The C library opens, but is not what was looked for.
  search.explicit_of(LibraryKind::cudnn) = "libc.so.6";
  const LibraryResult other = find_library(LibraryKind::cudnn, search, [](const Library& library) {
    return library.symbol("cudnnGetVersion") ? "" : "it lacks cudnnGetVersion";
  });
  EXPECT_FALSE(other.library);
  ASSERT_EQ(other.rejected.size(), 1u);
  EXPECT_EQ(other.rejected[0].reason, "it lacks cudnnGetVersion");
}

TEST(CudaLibraries, TakesTheFirstThatFits) {
  LibrarySearch search;
  search.explicit_of(LibraryKind::nccl) = "libm.so.6";
  const LibraryResult result =
      find_library(LibraryKind::nccl, search, [](const Library& library) { return library.symbol("cos") ? "" : "no cos"; });
  ASSERT_TRUE(result.library);
  EXPECT_NE(result.library->path().find("/libm.so.6"), std::string::npos) << result.library->path();
  EXPECT_TRUE(result.rejected.empty());
}

TEST(CudaLibraries, TheEnvironmentIsPassedIn) {
  const std::map<std::string, std::string> variables = {
      {"CUDA_PATH", "/c"}, {"CONDA_PREFIX", "/d"}, {"VIRTUAL_ENV", "/v"}, {"HOME", "/h"}};
  const LibrarySearch search = search_by_variables([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
  EXPECT_EQ(search.cuda_home, "/c");
  EXPECT_EQ(search.conda_prefix, "/d");
  EXPECT_EQ(search.python_prefixes, (std::vector<Path>{"/v", "/h/.local"}));
}

}  // namespace
}  // namespace gcomp::runtime::cuda
