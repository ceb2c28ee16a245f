// Columns of a table in memory, typed by what their fields hold: whole numbers, real numbers or, where there is other text,
// categories.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/random_access_file.h"

namespace gcomp::data {

enum class MissingPolicy : std::uint8_t { refuse, mean, zero };

struct Column {
  enum class Kind : std::uint8_t { integers, reals, categories };

  std::string name;
  Kind kind = Kind::integers;
  std::vector<std::int64_t> integers = {};  ///< of integers; of categories, the number of each
  std::vector<double> reals = {};
  std::vector<std::string> classes = {};  ///< of categories, in byte order
  /// Rows without a value: its place holds 0. Fields that are empty, NaN, NA and what else pandas reads so, and "?".
  std::vector<std::int64_t> missing = {};

  bool is_number() const { return kind != Kind::categories; }
  double number(std::int64_t row) const {
    const auto i = static_cast<std::size_t>(row);
    return kind == Kind::reals ? reals[i] : static_cast<double>(integers[i]);
  }
};

struct TableOptions {
  char separator = ',';
  bool header = true, header_given = false;
  std::vector<std::string> categories = {}, numbers = {}, drop = {};  ///< names of columns
  std::vector<std::string> known_categories = {};                     ///< the same of columns that the table need not have
};

struct Table {
  std::vector<Column> columns;
  std::int64_t rows = 0;
  std::int64_t first_line = 1;
  std::vector<std::int64_t> lines = {};  ///< of each row, where they do not follow one another
  std::vector<std::string> notes = {};

  std::int64_t line(std::int64_t row) const { return lines.empty() ? first_line + row : lines[static_cast<std::size_t>(row)]; }
  /// The column's position, or -1.
  std::int64_t find(std::string_view name) const;
  std::vector<std::string> names() const;
};

/// Reads it whole. Throws UserError with file, line and column where it is no table, or text stands where numbers are demanded.
Table read_table(const RandomAccessFile& file, const TableOptions& options);

/// Of these rows (all, where there are none), those that have a value; nothing where none has. In their order, so that it is the
/// same everywhere.
std::optional<double> mean_of(const Column& column, std::span<const std::int64_t> rows = {});

/// Fills what is missing: with `mean`, or that of the others where it is not given, or 0; among categories it becomes one of its
/// own, whose name is "". Throws UserError where a column has no value at all of which to take the mean.
void fill_missing(Column& column, MissingPolicy policy, const std::string& path, std::optional<double> mean = {});

/// Numbers the texts of a column as `classes` has them. Throws UserError for one that is not among them, which `source` has.
void number_as(Column& column, const std::vector<std::string>& classes, const std::string& path, const std::string& source);

/// A whole number or a finite real one, with a sign or without, and spaces around it.
bool is_number_text(std::string_view text);

}  // namespace gcomp::data
