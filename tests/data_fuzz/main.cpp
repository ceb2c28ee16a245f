// data_fuzz: edited files through every format that --data reads. See tests/data_fuzz/subjects.h for how a format takes part, and
// tests/structure_fuzz/cases.h for limits and how a case is repeated.
#include <algorithm>
#include <memory>

#include "data/format.h"
#include "ir/base/error.h"
#include "tests/data_fuzz/edit_data.h"
#include "tests/data_fuzz/subjects.h"
#include "tests/structure_fuzz/cases.h"
#include "tests/temporary_directory.h"

namespace gcomp::tests {
namespace {

constexpr std::int64_t kMostBytes = 16 << 20;   // that are fetched from one case
constexpr std::int64_t kLargestRow = 64 << 20;  // one that a bad size has made is asked for all the same

struct Seeds {
  fs::path scratch;
  std::vector<DataSeed> all = {};
};

/// In one order, whatever the file system's is.
std::vector<fs::path> files_under(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(fs::relative(entry.path(), folder));
  std::sort(files.begin(), files.end());
  return files;
}

/// A file of any seed.
std::string another_file(Random& random, const std::vector<DataSeed>& seeds) {
  const DataSeed& seed = seeds[pick(random, seeds.size())];
  const std::vector<fs::path> files = files_under(seed.folder);
  return test::contents(seed.folder / files[pick(random, files.size())]);
}

/// A copy of the seed, as folder/NUMBER, with one or two of its files edited.
std::pair<std::string, std::string> make_case(Random& random, const std::vector<DataSeed>& seeds, const fs::path& folder) {
  const std::size_t number = pick(random, seeds.size());
  const std::string name = std::to_string(number);
  for (const auto& old : fs::directory_iterator(folder)) fs::remove_all(old.path());
  fs::copy(seeds[number].folder, folder / name, fs::copy_options::recursive);
  const std::vector<fs::path> files = files_under(folder / name);
  std::string what = "edited";
  for (std::size_t edits = 1 + pick(random, 2); edits > 0; --edits) {
    const fs::path& file = files[pick(random, files.size())];
    what += " " + file.string();
    if (files.size() > 1 && pick(random, 16) == 0) fs::remove(folder / name / file);
    else test::put(folder / name / file, edit_data(random, test::contents(folder / name / file), another_file(random, seeds)));
  }
  return {name, what};
}

/// Every row where they are few, else the first and last.
std::vector<std::int64_t> rows_to_read(const data::Source& source, std::int64_t row_bytes) {
  const std::int64_t count =
      std::min(source.rows(), std::max<std::int64_t>(kMostBytes / std::max<std::int64_t>(row_bytes, 1000), 1));
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < count; ++i) rows.push_back(i < (count + 1) / 2 ? i : source.rows() - count + i);
  return rows;
}

void read_images(const data::ImageSource& images, const data::Source& source) {
  data::Image image;
  for (const std::int64_t row : rows_to_read(source, 1 << 16)) {
    const data::ImageSize size = images.size(row);
    images.decode(row, images.channels(row), std::nullopt, image);
    check_internal(image.height == size.height && image.width == size.width, "an image is of another size than it said");
    if (size.height > 2 && size.width > 2)
      images.decode(row, 3, data::Box{.top = 1, .left = 1, .height = size.height - 2, .width = size.width - 2}, image);
  }
}

void read_array(const data::Source& source, std::size_t array, const TensorType& type) {
  if (const data::ImageSource* images = source.images(array)) return read_images(*images, source);
  const std::int64_t bytes = type.bytes();
  if (bytes > kLargestRow) return;
  std::vector<std::byte> row(static_cast<std::size_t>(bytes));
  for (const std::int64_t i : rows_to_read(source, bytes)) source.fetch(array, i, row);
  if (const Tensor* whole = source.whole(array))
    check_internal(whole->shape().at(0) == source.rows(), "an array in memory has another number of rows");
}

void read_all(const data::Source& source) {
  check_internal(source.rows() > 0, "a source without rows was opened");
  const std::vector<NamedType> arrays = source.arrays();
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    source.class_names(i);
    read_array(source, i, arrays[i].second);
  }
  source.where(0);
  source.notes();
  source.vocabulary();
  check_internal(source.overlap() >= 0, "a negative overlap");
}

std::string options_in(std::string options, const fs::path& folder) {
  for (std::size_t at = options.find('@'); at != options.npos; at = options.find('@', at + folder.string().size()))
    options.replace(at, 1, folder.string());
  return options;
}

void read_case(Random& random, const DataSeed& seed, std::string_view format, const fs::path& folder) {
  const fs::path path = seed.open.empty() ? folder : folder / seed.open;
  const bool by_name = pick(random, 4) != 0;
  const std::string options = options_in(seed.options, folder);
  const std::string spec =
      concat(by_name ? concat(format, ":") : std::string(), path.string(), options.empty() ? "" : ",", options);
  const std::unique_ptr<data::Source> source = data::open(data::parse_spec(spec), seed.wanted);
  if (pick(random, 8) == 0) {
    const std::vector<fs::path> files = files_under(folder);
    const fs::path file = folder / files[pick(random, files.size())];
    fs::resize_file(file, pick(random, fs::file_size(file) + 1));
  }
  read_all(*source);
}

Subject subject_of(const DataSubject& format, const fs::path& scratch) {
  const auto seeds = std::make_shared<Seeds>(Seeds{scratch / format.format});
  const auto made = [seeds, make = format.seeds]() -> const std::vector<DataSeed>& {
    if (seeds->all.empty()) {
      fs::remove_all(seeds->scratch);  // what a worker before this one made
      fs::create_directories(seeds->scratch);
      seeds->all = make(seeds->scratch);
    }
    return seeds->all;
  };
  return {std::string(format.format), [made](Random& random, const fs::path& folder) { return make_case(random, made(), folder); },
          [made, name = format.format](Random& random, const fs::path& folder) {
            read_case(random, made()[std::stoul(folder.filename().string())], name, folder);
          }};
}

std::vector<Subject> all_subjects(const fs::path& scratch) {
  std::vector<Subject> subjects;
  for (const DataSubject& format : data_subjects()) subjects.push_back(subject_of(format, scratch));
  return subjects;
}

int main_of(int argc, char** argv) {
  std::string names;
  for (const DataSubject& format : data_subjects()) names += concat(names.empty() ? "" : ", ", format.format);
  return run_fuzzer(argc, argv,
                    {.name = "data_fuzz",
                     .summary = "data_fuzz puts edited files through every format that --data reads",
                     .subject_names = names,
                     .subjects = all_subjects});
}

}  // namespace
}  // namespace gcomp::tests

int main(int argc, char** argv) { return gcomp::tests::main_of(argc, argv); }
