// Small data of the formats in data/arrays: of tests/fixtures/data/arrays, which other programs wrote, and some by definition.
#include "ir/base/error.h"
#include "runtime/files/npz.h"
#include "tests/data_fuzz/subjects.h"
#include "tests/temporary_directory.h"

namespace gcomp::tests {
namespace {

const fs::path kArrayFixtures = fs::path(GCOMP_SOURCE_DIR) / "tests/fixtures/data/arrays";

/// A new folder for a seed.
fs::path seed_folder(const fs::path& scratch, const std::string& name) {
  fs::create_directories(scratch / name);
  return scratch / name;
}

/// A seed with copies of these fixtures, of which the first is opened, or the folder where there are several.
DataSeed seed_of(const fs::path& scratch, const std::string& name, const std::vector<std::string>& fixtures) {
  DataSeed seed{.folder = seed_folder(scratch, name),
                .open = fixtures.size() == 1 ? fs::path(fixtures[0]).filename().string() : ""};
  for (const std::string& fixture : fixtures) fs::copy(kArrayFixtures / fixture, seed.folder / fs::path(fixture).filename());
  return seed;
}

data::WantedArray ids_of(std::int64_t length) { return {.name = "ids", .dtype = DType::i32, .row = Shape{length}}; }

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
  return {stored, deflated, asked, seed_of(scratch, "numpy", {"mixed.npz"})};
}

std::vector<DataSeed> npy_seeds(const fs::path& scratch) {
  std::vector<DataSeed> seeds{seed_of(scratch, "all", {"npy/image.npy", "npy/label.npy", "npy/flags.npy", "npy/scalar.npy"})};
  for (const char* name : {"image", "fortran", "fortran_big", "big", "flags"})
    seeds.push_back(seed_of(scratch, name, {concat("npy/", name, ".npy")}));
  return seeds;
}

std::vector<DataSeed> safetensors_seeds(const fs::path& scratch) {
  DataSeed all = seed_of(scratch, "all", {"arrays.safetensors"}), asked = all;
  asked.wanted = {{.name = "flags"}, {.name = "label", .input = false}};
  return {all, asked};
}

std::vector<DataSeed> idx_seeds(const fs::path& scratch) {
  DataSeed train = seed_of(scratch, "train", {"idx/train-images-idx3-ubyte.gz", "idx/train-labels-idx1-ubyte"});
  DataSeed test = seed_of(scratch, "test", {"idx/t10k-images-idx3-ubyte", "idx/t10k-labels-idx1-ubyte.gz"}), named = test;
  test.options = "part=test";
  named.open = "t10k-images-idx3-ubyte";
  named.options = "labels='@/t10k-labels-idx1-ubyte.gz'";
  return {train, test, named, seed_of(scratch, "f4", {"idx_types/f4"})};
}

std::vector<DataSeed> cifar_seeds(const fs::path& scratch) {
  const DataSeed ten{.folder = seed_folder(scratch, "ten")};
  test::put(ten.folder / "data_batch_1.bin", std::string(2 * 3073, '\3'));
  for (const int batch : {2, 3, 4, 5}) test::put(ten.folder / concat("data_batch_", batch, ".bin"), std::string(3073, '\4'));
  test::put(ten.folder / "batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
  const DataSeed hundred{.folder = seed_folder(scratch, "hundred"), .options = "part=test"};
  std::string names;
  for (int i = 0; i < 100; ++i) names += concat("class", i, "\n");
  test::put(hundred.folder / "test.bin", std::string(2 * 3074, '\5'));
  test::put(hundred.folder / "fine_label_names.txt", names);
  const DataSeed one{.folder = ten.folder, .open = "data_batch_1.bin", .options = "classes=10"};
  return {ten, hundred, one};
}

std::vector<DataSeed> token_seeds(const fs::path& scratch) {
  DataSeed raw = seed_of(scratch, "raw", {"nanogpt.bin"}), wide = raw,
           folder = seed_of(scratch, "folder", {"llmc_gpt2.bin", "nanogpt.bin"});
  raw.options = "stride=1";
  raw.wanted = {ids_of(24)};
  wide.options = "dtype=uint32,length=5,stride=7";
  folder.options = "length=10";
  DataSeed headed = seed_of(scratch, "headed", {"llmc_llama3.bin"});
  headed.wanted = {ids_of(8)};
  return {raw, wide, folder, headed};
}

std::vector<DataSeed> text_seeds(const fs::path& scratch) {
  DataSeed characters = seed_of(scratch, "characters", {"characters.txt"}), bytes = characters, asked = characters;
  characters.options = "length=3,stride=1,unit=characters";
  bytes.options = "length=3,stride=2,unit=bytes";
  asked.wanted = {ids_of(5)};
  DataSeed known{.folder = seed_folder(scratch, "known"), .open = "x.txt", .options = "length=2,vocabulary='@/v.json'"};
  test::put(known.folder / "x.txt", "abba\nbaba é\n");
  test::put(known.folder / "v.json",
            "{\"kind\": \"characters\", \"tokens\": [\"b\", \"a\", \" \", \"\\n\", \"é\", \"\\u00e8\"]}\n");
  DataSeed known_bytes{.folder = seed_folder(scratch, "known_bytes"), .open = "x.txt", .options = known.options};
  test::put(known_bytes.folder / "x.txt", "abba\nbaba\n");
  test::put(known_bytes.folder / "v.json", "{\"kind\": \"bytes\", \"tokens\": [97, 98, 10, 99]}\n");
  return {characters, bytes, asked, known, known_bytes};
}

}  // namespace gcomp::tests
