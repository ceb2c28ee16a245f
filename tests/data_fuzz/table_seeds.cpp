// Small tables: of tests/fixtures/data/tables, which Python's csv module wrote, and some with each kind of column.
#include "ir/base/tensor.h"
#include "tests/data_fuzz/subjects.h"
#include "tests/temporary_directory.h"

namespace gcomp::tests {
namespace {

constexpr char kPeople[] =
    "age,city,score,label\n31,Rom,0.5,yes\n28,\"Bonn, am Rhein\",-1e3,no\n,Rom,+7.25,yes\n40,NA,nan,\"no\"\r\n\n5,x,1,yes\n";

/// A folder with one file.
DataSeed table_seed(const fs::path& scratch, const std::string& name, const std::string& text, const std::string& options) {
  DataSeed seed{.folder = scratch / name, .open = "t.csv", .options = options};
  fs::create_directories(seed.folder);
  test::put(seed.folder / seed.open, text);
  return seed;
}

DataSeed fixture_seed(const fs::path& scratch, const std::string& name, const std::string& options) {
  const fs::path tables = fs::path(GCOMP_SOURCE_DIR) / "tests/fixtures/data/tables";
  return table_seed(scratch, name, test::contents(tables / (name + ".csv")), options);
}

}  // namespace

std::vector<DataSeed> csv_seeds(const fs::path& scratch) {
  DataSeed asked = table_seed(scratch, "asked", kPeople, "missing=mean");
  asked.wanted = {{.name = "x", .dtype = DType::f32, .row = Shape{2}}, {.name = "label", .input = false}};
  DataSeed named = table_seed(scratch, "named", kPeople, "missing=zero,label=city,drop=label,categories=age,numbers=score");
  named.wanted = {{.name = "score", .dtype = DType::f64, .row = Shape{}}, {.name = "label", .input = false}};
  return {asked,
          named,
          table_seed(scratch, "plain", kPeople, ""),
          table_seed(scratch, "features", "a,b\n1,2\n3,4.5\n", "features='b,a'"),
          fixture_seed(scratch, "comma", "header=false"),
          fixture_seed(scratch, "quoted", "header=false"),
          fixture_seed(scratch, "semicolon_lf", "header=false,separator=\";\"")};
}

std::vector<DataSeed> tsv_seeds(const fs::path& scratch) {
  return {fixture_seed(scratch, "tab", "header=false"), table_seed(scratch, "plain", "a\tb\n1\tx\n2\ty\n", "label=b")};
}

}  // namespace gcomp::tests
