#include "tests/data_fuzz/subjects.h"

namespace gcomp::tests {
namespace {

constexpr DataSubject kDataSubjects[] = {
    {"npz", npz_seeds},
};

}  // namespace

std::span<const DataSubject> data_subjects() { return kDataSubjects; }

}  // namespace gcomp::tests
