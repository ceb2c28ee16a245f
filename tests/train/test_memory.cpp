// Data lies in memory once, whatever dtype it has and whether it is trained on or evaluated.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "runtime/convert.h"
#include "runtime/files/npz.h"
#include "tests/drive/command.h"
#include "tests/drive/recorded_model.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

using runtime::test::TemporaryDirectory;

/// mlp's data repeated until x alone has `bytes`, x as `dtype`.
void write_repeated(const std::filesystem::path& path, std::int64_t bytes, DType dtype) {
  std::map<std::string, Tensor> once = load_arrays(recorded_model("mlp").data());
  once["x"] = runtime::convert(once.at("x"), dtype, "x");
  const std::int64_t times = bytes / once.at("x").type().bytes();
  std::vector<runtime::NamedTensor> arrays;
  for (const auto& [name, tensor] : once) {
    TensorType type = tensor.type();
    type.shape[0] *= times;
    Tensor repeated(type);
    for (std::int64_t i = 0; i < times; ++i)
      std::memcpy(repeated.data() + i * tensor.type().bytes(), tensor.data(), tensor.bytes().size());
    arrays.emplace_back(name, std::move(repeated));
  }
  runtime::write_npz(path, arrays);
}

std::int64_t peak_of_training_on(const std::filesystem::path& data) {
  const TemporaryDirectory folder;
  const CommandResult result = run_gcomp({"train", recorded_model("mlp").model(), "--data", data, "--loss", "bce", "--batch", "64",
                                          "--steps", "2", "--threads", "1", "--out", folder / "t.onnx"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return result.peak_bytes;
}

TEST(Memory, DataIsThereOnce) {
  if (on_another_device()) GTEST_SKIP() << "a GPU's driver takes memory of its own";
  constexpr std::int64_t kBytes = 64 << 20;
  const TemporaryDirectory folder;
  const std::string data = folder / "data.npz";
  const std::int64_t alone = peak_of_training_on(recorded_model("mlp").data());
  for (const DType dtype : {DType::f32, DType::f64}) {
    write_repeated(data, kBytes, dtype);
    // The label and the order of rows are a fifth of x; a sanitizer keeps an eighth beside each byte.
    EXPECT_LT(peak_of_training_on(data), alone + kBytes + kBytes / 2) << name_of(dtype);
  }
}

}  // namespace
}  // namespace gcomp::test
