// structure_fuzz: files of edited structure through everything that reads them.
#include "tests/structure_fuzz/subjects.h"

namespace gcomp::tests {
namespace {

int main_of(int argc, char** argv) {
  std::vector<std::string> corpus;
  const auto make_subjects = [&](const std::filesystem::path& scratch) {
    if (corpus.empty()) corpus = {GCOMP_SOURCE_DIR "/tests/fixtures/models", GCOMP_SOURCE_DIR "/examples"};
    return subjects({corpus.begin(), corpus.end()}, scratch);
  };
  const auto declare = [&](tools::ArgumentParser& parser) {
    parser.add_repeated("--corpus", corpus, "a folder of .onnx files; repeatable (default: the project's own)");
  };
  return run_fuzzer(argc, argv,
                    {.name = "structure_fuzz",
                     .summary = "structure_fuzz puts files of edited structure through everything that reads them",
                     .subject_names = "onnx, bombs, gir, npz, gcx or cache",
                     .subjects = make_subjects,
                     .declare = declare});
}

}  // namespace
}  // namespace gcomp::tests

int main(int argc, char** argv) { return gcomp::tests::main_of(argc, argv); }
