#include "data/arrays/stored_source.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "runtime/row_reader.h"

namespace gcomp::data {
namespace {

std::int64_t stored_rows(const StoredArray& array) {
  if (array.runs.empty()) return array.memory.shape().at(0);
  std::int64_t rows = 0;
  for (const RowRun& run : array.runs) rows += run.rows;
  return rows;
}

template <std::size_t Size>
void reverse_each(std::span<std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += Size) std::reverse(bytes.data() + at, bytes.data() + at + Size);
}

void make_row_native(const StoredArray& array, std::span<std::byte> row) {
  if (array.big_endian) {
    switch (size_of(array.row.dtype)) {
      case 2: reverse_each<2>(row); break;
      case 4: reverse_each<4>(row); break;
      case 8: reverse_each<8>(row); break;
      default: break;
    }
  }
  if (array.row.dtype != DType::boolean) return;
  for (std::byte& value : row) {
    check_user(value <= std::byte{1} || array.booleans == StoredBool::any, "a bool is neither 0 nor 1");
    value = std::byte{value != std::byte{0}};
  }
}

/// Where a row lies: the run, and which row of it.
std::pair<const RowRun&, std::int64_t> locate_row(const StoredArray& array, std::int64_t row) {
  std::size_t run = 0;
  while (row >= array.runs[run].rows) row -= array.runs[run++].rows;
  return {array.runs[run], row};
}

/// A read of few bytes costs as much as one of many, and labels come with each row. Bools may be wrong in some row, which is an
/// error when that row is due.
bool is_held_in_memory(const StoredArray& array) {
  if (array.row.dtype == DType::boolean) return false;
  constexpr std::int64_t kShortRow = 64, kMostBytes = std::int64_t{64} << 20;
  return array.row.bytes() <= kShortRow && stored_rows(array) <= kMostBytes / std::max<std::int64_t>(array.row.bytes(), 1);
}

void hold_in_memory(StoredArray& array, const std::string& source) {
  TensorType type{array.row.dtype, {stored_rows(array)}};
  type.shape.insert(type.shape.end(), array.row.shape.begin(), array.row.shape.end());
  Tensor all(type);
  const auto row_bytes = static_cast<std::size_t>(array.row.bytes());
  std::span<std::byte> rest = all.bytes();
  std::int64_t row = 0;
  const auto take = [&](std::size_t bytes) { return std::exchange(rest, rest.subspan(bytes)).first(bytes); };
  for (const RowRun& run : array.runs) try {
      const bool joined = run.stride == row_bytes;
      if (joined) run.file->read(run.offset, rest.first(row_bytes * static_cast<std::size_t>(run.rows)));
      for (std::int64_t i = 0; i < run.rows; ++i, ++row) {
        const std::span<std::byte> bytes = take(row_bytes);
        if (!joined) run.file->read(run.offset + static_cast<std::uint64_t>(i) * run.stride, bytes);
        make_row_native(array, bytes);
      }
    } catch (const UserError& error) {
      throw UserError(concat(runtime::where_of(source, array.name), ", row ", row, ": ", error.what()));
    }
  array.memory = std::move(all);
  array.runs.clear();
}

bool is_wanted_array(std::string_view name, std::span<const WantedArray> wanted) {
  return std::ranges::any_of(wanted, [&](const WantedArray& w) { return w.name == name; });
}

/// Why an array gives no rows; "" where it does.
std::string row_problem(const FoundArray& array) {
  if (!array.problem.empty()) return array.problem;
  if (array.type.shape.empty())
    return "it is a scalar, wanted one row for each sample; what all samples share is a constant of the module";
  const Shape row(array.type.shape.begin() + 1, array.type.shape.end());
  if (TensorType{array.type.dtype, row}.elements() == 0) return "its rows have no elements";
  return "";
}

/// The number of rows that most have; of equals, the larger.
std::optional<std::int64_t> most_common_rows(std::span<const FoundArray> found) {
  std::map<std::int64_t, int> counts;
  for (const FoundArray& array : found)
    if (row_problem(array).empty()) ++counts[array.type.shape[0]];
  const auto most = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second < b.second : a.first < b.first;
  });
  return most == counts.end() ? std::nullopt : std::optional(most->first);
}

}  // namespace

StoredSource::StoredSource(std::string source, std::vector<StoredArray> arrays, std::vector<std::string> notes)
    : source_(std::move(source)), arrays_(std::move(arrays)), notes_(std::move(notes)) {
  check_user(!arrays_.empty(), "'", source_, "' has no arrays");
  rows_ = stored_rows(arrays_[0]);
  for (const StoredArray& array : arrays_)
    check_user(stored_rows(array) == rows_, "'", source_, "': array '", arrays_[0].name, "' has ", rows_, " rows, but array '",
               array.name, "' has ", stored_rows(array));
  check_user(rows_ > 0, "'", source_, "' has no rows");
  for (StoredArray& array : arrays_)
    if (!array.runs.empty() && is_held_in_memory(array)) hold_in_memory(array, source_);
}

std::vector<NamedType> StoredSource::arrays() const {
  std::vector<NamedType> types;
  for (const StoredArray& array : arrays_) types.emplace_back(array.name, array.row);
  return types;
}

void StoredSource::fetch(std::size_t index, std::int64_t row, std::span<std::byte> bytes) const {
  const StoredArray& array = arrays_[index];
  if (array.runs.empty()) {
    std::memcpy(bytes.data(), array.memory.data() + static_cast<std::size_t>(row) * bytes.size(), bytes.size());
    return;
  }
  try {
    const auto& [run, within] = locate_row(array, row);
    run.file->read(run.offset + static_cast<std::uint64_t>(within) * run.stride, bytes);
    make_row_native(array, bytes);
  } catch (const UserError& error) {
    throw UserError(concat(runtime::where_of(source_, array.name), ", row ", row, ": ", error.what()));
  }
}

const Tensor* StoredSource::whole(std::size_t array) const {
  return arrays_[array].runs.empty() ? &arrays_[array].memory : nullptr;
}

std::string StoredSource::where(std::int64_t row) const {
  for (const StoredArray& array : arrays_) {
    if (array.runs.size() < 2) continue;
    const auto& [run, within] = locate_row(array, row);
    return concat("'", run.file->path(), "', row ", within);
  }
  return Source::where(row);
}

ArrayChoice choose_arrays(const std::string& source, std::span<const FoundArray> found, std::span<const WantedArray> wanted) {
  const auto is_found = [&](const WantedArray& w) {
    return std::ranges::any_of(found, [&](const FoundArray& array) { return array.name == w.name; });
  };
  const bool only_wanted = !wanted.empty() && std::ranges::all_of(wanted, is_found);
  const auto first_wanted = std::ranges::find_if(
      found, [&](const FoundArray& array) { return is_wanted_array(array.name, wanted) && row_problem(array).empty(); });
  const auto rows = first_wanted != found.end() ? std::optional(first_wanted->type.shape[0]) : most_common_rows(found);
  ArrayChoice choice;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool asked_for = is_wanted_array(found[i].name, wanted);
    if (only_wanted && !asked_for) continue;
    std::string problem = row_problem(found[i]);
    check_user(problem.empty() || !asked_for, runtime::where_of(source, found[i].name), ": ", problem);
    if (problem.empty() && !asked_for && found[i].type.shape[0] != rows)
      problem = concat("it has ", found[i].type.shape[0], " rows, others have ", *rows);
    if (problem.empty()) choice.chosen.push_back(i);
    else choice.notes.push_back(concat("array '", found[i].name, "' is left out: ", problem));
  }
  if (choice.chosen.empty() && found.size() == 1) throw UserError(concat("'", source, "': ", row_problem(found[0])));
  check_user(!choice.chosen.empty(), "'", source, "' has no array with one row for each sample");
  return choice;
}

}  // namespace gcomp::data
