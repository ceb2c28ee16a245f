// Small data of the formats in data/images, which are fixtures of tests/data: JPEG and PNG of every kind, archives by Python's
// tarfile.
#include <fstream>

#include "data/images/shard.h"
#include "ir/base/error.h"
#include "runtime/files/npz.h"
#include "tests/data_fuzz/subjects.h"

namespace gcomp::tests {
namespace {

const fs::path kImageFixtures = GCOMP_SOURCE_DIR "/tests/fixtures/data";

/// Name and bytes of every image file in images.npz.
std::vector<NamedTensor> encoded_images() {
  const runtime::NpzFile archive(kImageFixtures / "images.npz");
  std::vector<NamedTensor> images;
  for (const std::string& name : archive.names())
    if (name.find('.') == name.npos) images.emplace_back(name, archive.load(name));
  return images;
}

void put_bytes(const fs::path& path, std::span<const std::byte> bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

DataSeed folder_of_archives(const fs::path& folder, std::initializer_list<const char*> names, const std::string& open) {
  fs::create_directories(folder);
  for (const char* name : names) fs::copy_file(kImageFixtures / name, folder / name);
  return {.folder = folder, .open = open};
}

}  // namespace

/// A folder for each image, so that every case edits pixels of its kind, and one of classes in folders.
std::vector<DataSeed> image_folder_seeds(const fs::path& scratch) {
  std::vector<DataSeed> seeds;
  const DataSeed classes{.folder = scratch / "classes"};
  int number = 0;
  for (const auto& [name, bytes] : encoded_images()) {
    const std::string file = name + (name.starts_with("jpeg") ? ".jpg" : ".png");
    put_bytes(scratch / name / "class" / file, bytes.bytes());
    seeds.push_back({.folder = scratch / name});
    if (++number % 4 == 0) put_bytes(classes.folder / (number % 8 == 0 ? "a" : "b/deep") / file, bytes.bytes());
  }
  seeds.push_back(classes);
  return seeds;
}

std::vector<DataSeed> tar_seeds(const fs::path& scratch) {
  return {folder_of_archives(scratch / "samples", {"samples.tar"}, "samples.tar"),
          folder_of_archives(scratch / "folders", {"folders.tar"}, "folders.tar"),
          folder_of_archives(scratch / "names", {"names.tar"}, "names.tar"),
          folder_of_archives(scratch / "several", {"folders.tar", "names.tar"}, "")};
}

/// Edits of index and end are found by their checksums; those of images reach the decoders.
std::vector<DataSeed> shard_seeds(const fs::path& scratch) {
  const DataSeed seed{.folder = scratch / "shard", .open = "images.shard"};
  fs::create_directories(seed.folder);
  data::ShardWriter writer(seed.folder / seed.open, {.classes = {"a", "b"}});
  data::Image raw;
  raw.reshape(5, 7, 3);
  writer.add(raw, 0);
  for (const auto& [name, bytes] : encoded_images())
    if (name == "jpeg_420" || name == "jpeg_grey" || name == "png_3_4_interlaced") writer.add(bytes.bytes(), 1);
  writer.commit();
  return {seed};
}

}  // namespace gcomp::tests
