// What data_fuzz edits: for each format of data/format.h, some small valid data. To add a format: a file of its own in this folder
// with a function `std::vector<DataSeed> NAME_seeds(const fs::path& scratch)`, declared here, and a row in the table of
// subjects.cpp.
//
//   std::vector<DataSeed> npy_seeds(const fs::path& scratch) {
//     const DataSeed one{.folder = scratch / "one", .open = "x.npy"};
//     fs::create_directory(one.folder);
//     runtime::write_npy(one.folder / one.open, Tensor(DType::f32, {3, 4}));
//     return {one};
//   }
//
// A case is a copy of one seed's folder, in which a file or two are edited (bytes, numbers, text, cut off, parts of another file of
// the format) or removed. It is opened by the format's name, or by content; everything that a Source tells is asked for, every row
// fetched, every image decoded. Now and then a file becomes shorter after it was opened. Success and UserError are right, all else
// is a finding. Files of at most some 10 KB make many cases a second, and so does TMPDIR=/dev/shm.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/source.h"

namespace gcomp::tests {

namespace fs = std::filesystem;

struct DataSeed {
  fs::path folder = {};                        ///< all files in it, at any depth, belong to the case
  std::string open = {};                       ///< what --data opens, relative to the folder; "" for the folder itself
  std::string options = {};                    ///< "length=4,labels='@/labels'", where @ is the case's folder
  std::vector<data::WantedArray> wanted = {};  ///< what a model asks for
};

struct DataSubject {
  std::string_view format;  ///< its name
  /// Makes the seeds in an empty folder.
  std::vector<DataSeed> (*seeds)(const fs::path& scratch);
};

/// The table.
std::span<const DataSubject> data_subjects();

std::vector<DataSeed> npz_seeds(const fs::path& scratch);
std::vector<DataSeed> npy_seeds(const fs::path& scratch);
std::vector<DataSeed> safetensors_seeds(const fs::path& scratch);
std::vector<DataSeed> idx_seeds(const fs::path& scratch);
std::vector<DataSeed> cifar_seeds(const fs::path& scratch);
std::vector<DataSeed> token_seeds(const fs::path& scratch);
std::vector<DataSeed> text_seeds(const fs::path& scratch);
std::vector<DataSeed> image_folder_seeds(const fs::path& scratch);
std::vector<DataSeed> tar_seeds(const fs::path& scratch);
std::vector<DataSeed> shard_seeds(const fs::path& scratch);
std::vector<DataSeed> csv_seeds(const fs::path& scratch);
std::vector<DataSeed> tsv_seeds(const fs::path& scratch);

}  // namespace gcomp::tests
