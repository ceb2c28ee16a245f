// Small data of the formats in data/arrays.
#include "runtime/files/npz.h"
#include "tests/data_fuzz/subjects.h"

namespace gcomp::tests {
namespace {

fs::path seed_folder(const fs::path& scratch, const std::string& name) {
  fs::create_directories(scratch / name);
  return scratch / name;
}

}  // namespace

std::vector<DataSeed> npz_seeds(const fs::path& scratch) {
  const std::vector<NamedTensor> arrays{{"x", Tensor(DType::f32, {3, 4})},
                                        {"label", Tensor(DType::i64, {3})},
                                        {"mask", Tensor(DType::boolean, {3, 1})},
                                        {"scale", Tensor(DType::f64, Shape{})}};
  const DataSeed stored{.folder = seed_folder(scratch, "stored"), .open = "a.npz"};
  const DataSeed deflated{.folder = seed_folder(scratch, "deflated"), .open = "a.npz"};
  runtime::write_npz(stored.folder / stored.open, arrays);
  runtime::write_npz(deflated.folder / deflated.open, arrays, runtime::Compression::deflated);
  DataSeed asked = stored;
  asked.wanted = {{.name = "x"}, {.name = "label", .input = false}};
  return {stored, deflated, asked};
}

}  // namespace gcomp::tests
