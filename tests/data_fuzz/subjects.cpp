#include "tests/data_fuzz/subjects.h"

namespace gcomp::tests {
namespace {

constexpr DataSubject kDataSubjects[] = {
    {"npz", npz_seeds},      {"npy", npy_seeds},   {"safetensors", safetensors_seeds}, {"idx", idx_seeds}, {"cifar", cifar_seeds},
    {"tokens", token_seeds}, {"text", text_seeds}, {"images", image_folder_seeds},     {"tar", tar_seeds}, {"shard", shard_seeds},
    {"csv", csv_seeds},      {"tsv", tsv_seeds},
};

}  // namespace

std::span<const DataSubject> data_subjects() { return kDataSubjects; }

}  // namespace gcomp::tests
