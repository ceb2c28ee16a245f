#include "data/tables/columns.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "data/arrays/utf8_reader.h"
#include "data/tables/record_reader.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "ir/base/units.h"

namespace gcomp::data {
namespace {

constexpr std::uint64_t kLargestTable = std::uint64_t{1} << 34;
constexpr std::size_t kShownField = 60;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// pandas' na_values, and "?" of the UCI repository.
bool is_missing(std::string_view text) {
  static constexpr std::array<std::string_view, 21> kMissing = {"",     "#N/A",   "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN", "-NaN",
                                                                "-nan", "1.#IND", "1.#QNAN",  "<NA>", "N/A",     "NA",       "NULL",
                                                                "NaN",  "None",   "n/a",      "nan",  "null",    "?",        "NAN"};
  if (text.size() > 8) return false;
  return std::ranges::find(kMissing, text) != kMissing.end();
}

struct ParsedNumber {
  enum class Kind : std::uint8_t { none, integer, real, infinite } kind = Kind::none;
  std::int64_t integer = 0;
  double real = 0;
};

ParsedNumber parse_number(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-' && text[1] != '+') text.remove_prefix(1);
  ParsedNumber parsed;
  const char *const first = text.data(), *const last = first + text.size();
  const auto whole = std::from_chars(first, last, parsed.integer);
  if (whole.ptr == last && whole.ec == std::errc()) {
    parsed.kind = ParsedNumber::Kind::integer;
    return parsed;
  }
  const auto [end, error] = std::from_chars(first, last, parsed.real);
  if (end != last || error == std::errc::invalid_argument || text.empty()) return parsed;
  const bool finite = error == std::errc() && std::isfinite(parsed.real);
  const bool tiny = error == std::errc::result_out_of_range && text.find_first_of("eE") != text.npos &&
                    text.find('-', text.find_first_of("eE")) != text.npos;
  if (tiny) parsed.real = 0;
  parsed.kind = finite || tiny ? ParsedNumber::Kind::real : ParsedNumber::Kind::infinite;
  return parsed;
}

std::string shown_field(std::string_view text) {
  if (text.size() <= kShownField) return concat("'", text, "'");
  return concat("'", text.substr(0, kShownField), "...' (", text.size(), " bytes)");
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = decode_character(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

/// A column while its fields come in, the first row first.
class ColumnBuilder {
 public:
  enum class Rule : std::uint8_t { any, numbers, categories, skip };

  ColumnBuilder(std::string name, Rule rule) : rule_(rule) {
    column_.name = std::move(name);
    if (rule == Rule::categories) column_.kind = Column::Kind::categories;
  }

  template <class Place>
  void add(std::string_view text, std::int64_t row, const Place& place) {
    if (rule_ == Rule::skip || late_) return;
    const std::string_view value = trimmed(text);
    if (is_missing(value)) return add_missing(row);
    if (column_.kind == Column::Kind::categories) return add_category(text, place);
    const ParsedNumber number = parse_number(value);
    switch (number.kind) {
      case ParsedNumber::Kind::integer:
        if (column_.kind == Column::Kind::integers) column_.integers.push_back(number.integer);
        else column_.reals.push_back(static_cast<double>(number.integer));
        return;
      case ParsedNumber::Kind::real:
        become_real();
        column_.reals.push_back(number.real);
        return;
      case ParsedNumber::Kind::infinite:
        throw UserError(concat(place(column_.name), ": ", shown_field(text), " is beyond the range of numbers"));
      case ParsedNumber::Kind::none: return add_text(text, row, place);
    }
  }

  /// Text came after numbers, whose own text is gone: the file is to be read again.
  bool late() const { return late_; }
  const std::string& late_place() const { return late_place_; }
  Rule rule() const { return rule_; }

  Column take() {
    if (rule_ == Rule::numbers) become_real();
    if (column_.kind == Column::Kind::categories) number_by_bytes();
    return std::move(column_);
  }

 private:
  void add_missing(std::int64_t row) {
    column_.missing.push_back(row);
    if (column_.kind == Column::Kind::reals) column_.reals.push_back(0);
    else column_.integers.push_back(0);
  }

  template <class Place>
  void add_text(std::string_view text, std::int64_t row, const Place& place) {
    if (rule_ == Rule::numbers) throw UserError(concat(place(column_.name), ": found ", shown_field(text), ", wanted a number"));
    if (std::ssize(column_.missing) != row) {
      late_ = true;
      late_place_ = concat(place(column_.name), ": ", shown_field(text));
      column_.integers = {};
      column_.reals = {};
      return;
    }
    column_.kind = Column::Kind::categories;
    add_category(text, place);
  }

  template <class Place>
  void add_category(std::string_view text, const Place& place) {
    auto found = ids_.find(text);
    if (found == ids_.end()) {
      if (!is_utf8(text)) throw UserError(concat(place(column_.name), ": bytes that are no UTF-8"));
      found = ids_.emplace(std::string(text), static_cast<std::int64_t>(ids_.size())).first;
    }
    column_.integers.push_back(found->second);
  }

  void become_real() {
    if (column_.kind != Column::Kind::integers) return;
    column_.kind = Column::Kind::reals;
    column_.reals.assign(column_.integers.begin(), column_.integers.end());
    column_.integers = {};
  }

  /// From numbers in the order of appearance to those in byte order.
  void number_by_bytes() {
    std::vector<std::pair<std::string_view, std::int64_t>> sorted(ids_.begin(), ids_.end());
    std::ranges::sort(sorted);
    std::vector<std::int64_t> numbers(sorted.size() + 1);
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      numbers[static_cast<std::size_t>(sorted[i].second)] = static_cast<std::int64_t>(i);
      column_.classes.emplace_back(sorted[i].first);
    }
    for (std::int64_t& id : column_.integers) id = numbers[static_cast<std::size_t>(id)];
    for (const std::int64_t row : column_.missing) column_.integers[static_cast<std::size_t>(row)] = 0;
  }

  Column column_;
  Rule rule_;
  bool late_ = false;
  std::string late_place_;
  std::unordered_map<std::string, std::int64_t, TextHash, std::equal_to<>> ids_;
};

class TableReader {
 public:
  TableReader(const RandomAccessFile& file, const TableOptions& options) : file_(file), options_(options) {}

  Table read() {
    check_user(file_.size() > 0, "'", file_.path(), "' is empty");
    check_user(file_.size() <= kLargestTable, "'", file_.path(), "' has ", size_text(static_cast<double>(file_.size())),
               ", the limit for tables, which lie in memory, is ", size_text(static_cast<double>(kLargestTable)));
    read_rows();
    std::vector<ColumnBuilder> all = std::move(builders_);
    if (std::ranges::any_of(all, &ColumnBuilder::late)) {
      for (std::size_t i = 0; i < all.size(); ++i)
        rules_[i] = all[i].late() ? ColumnBuilder::Rule::categories : ColumnBuilder::Rule::skip;
      const std::int64_t rows = table_.rows;
      read_rows();
      check_user(table_.rows == rows, "'", file_.path(), "' has changed while it was read");
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (!all[i].late()) continue;
        table_.notes.push_back(concat(all[i].late_place(), " stands among numbers: the column is read as categories (numbers='",
                                      names_[i], "' makes it an error)"));
        all[i] = std::move(builders_[i]);
      }
    }
    for (std::size_t i = 0; i < all.size(); ++i)
      if (!is_dropped(names_[i])) table_.columns.push_back(all[i].take());
    return std::move(table_);
  }

 private:
  using Rule = ColumnBuilder::Rule;

  bool is_category(const std::string& name) const {
    return contains(options_.categories, name) || contains(options_.known_categories, name);
  }
  bool is_dropped(const std::string& name) const { return std::ranges::find(options_.drop, name) != options_.drop.end(); }

  /// Names of columns, from the first record, which is a row itself where there is no header.
  void read_names(const RecordReader& reader, const std::vector<std::string_view>& fields) {
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const auto place = [&] { return concat("'", file_.path(), "', line ", reader.line(), ", field ", i + 1, ": "); };
      if (options_.header) {
        check_user(is_utf8(fields[i]), place(), "the column's name is no UTF-8");
        check_header(fields, i, place());
      }
      const std::string_view name = options_.header ? trimmed(fields[i]) : std::string_view();
      names_.push_back(name.empty() ? concat("c", i) : std::string(name));
    }
    check_separator(fields);
    std::unordered_map<std::string_view, std::size_t> seen;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const auto [other, is_new] = seen.emplace(names_[i], i);
      check_user(is_new, "'", file_.path(), "', line ", reader.line(), ": the columns ", other->second + 1, " and ", i + 1,
                 " are both called '", names_[i], "'");
    }
    for (const auto* list : {&options_.categories, &options_.numbers, &options_.drop}) check_known(*list);
    for (const std::string& name : names_)
      rules_.push_back(is_dropped(name)                   ? Rule::skip
                       : is_category(name)                ? Rule::categories
                       : contains(options_.numbers, name) ? Rule::numbers
                                                          : Rule::any);
  }

  /// A table without names would lose its first row.
  void check_header(const std::vector<std::string_view>& fields, std::size_t i, const std::string& place) const {
    if (options_.header_given || !is_number_text(fields[i])) return;
    if (counts_up(fields)) return;
    throw UserError(concat(place, "found the number ", fields[i],
                           " where the columns' names are wanted; header=false where the table has none, header=true where this is "
                           "a name"));
  }

  /// Numbers that are 0, 1, 2, ...: what pandas writes for columns that have no names. A row of data may have two such.
  static bool counts_up(const std::vector<std::string_view>& fields) {
    std::size_t numbers = 0;
    for (const std::string_view field : fields)
      if (is_number_text(field) && field != std::to_string(numbers++)) return false;
    return numbers > 2;
  }

  void check_separator(const std::vector<std::string_view>& fields) const {
    if (fields.size() != 1) return;
    for (const char c : {';', '\t', ','})
      check_user(c == options_.separator || fields[0].find(c) == fields[0].npos, "'", file_.path(),
                 "', line 1: one field, whose text has '", c == '\t' ? "\\t" : std::string(1, c), "'; ",
                 c == '\t'  ? "tsv:PATH reads tables that tabs separate"
                 : c == ';' ? "separator=\";\" reads tables that semicolons separate"
                            : "csv:PATH reads tables that commas separate");
  }

  static bool contains(const std::vector<std::string>& list, const std::string& name) {
    return std::ranges::find(list, name) != list.end();
  }

  void check_known(const std::vector<std::string>& list) const {
    for (const std::string& name : list)
      if (!contains(names_, name))
        throw UserError(
            concat("'", file_.path(), "' has no column '", name, "', it has ", listing(names_), did_you_mean(name, names_)),
            ExitCode::usage);
  }

  void read_rows() {
    RecordReader reader(file_, options_.separator);
    std::vector<std::string_view> fields;
    bool more = reader.next(fields);
    check_user(more, "'", file_.path(), "' has no lines but empty ones");
    if (names_.empty()) read_names(reader, fields);
    const std::int64_t names_line = reader.line();
    builders_.clear();
    for (std::size_t i = 0; i < names_.size(); ++i) builders_.emplace_back(names_[i], rules_[i]);
    table_.rows = 0;
    table_.lines.clear();
    for (more = options_.header ? reader.next(fields) : more; more; more = reader.next(fields)) {
      if (fields.size() != names_.size())
        throw UserError(concat("'", file_.path(), "', line ", reader.line(), ": found ", fields.size(),
                               fields.size() == 1 ? " field" : " fields", ", wanted ", names_.size(), " as in line ", names_line));
      add_row(fields, reader.line());
    }
    check_user(table_.rows > 0, "'", file_.path(), "' has no rows", options_.header ? " after its header" : "");
  }

  void add_row(const std::vector<std::string_view>& fields, std::int64_t line) {
    const auto place = [&](const std::string& name) {
      return concat("'", file_.path(), "', line ", line, ", column '", name, "'");
    };
    for (std::size_t i = 0; i < fields.size(); ++i) builders_[i].add(fields[i], table_.rows, place);
    if (table_.rows == 0) table_.first_line = line;
    if (table_.lines.empty() && line != table_.first_line + table_.rows) {
      table_.lines.resize(static_cast<std::size_t>(table_.rows));
      std::iota(table_.lines.begin(), table_.lines.end(), table_.first_line);
    }
    if (!table_.lines.empty()) table_.lines.push_back(line);
    ++table_.rows;
  }

  const RandomAccessFile& file_;
  const TableOptions& options_;
  std::vector<std::string> names_;
  std::vector<Rule> rules_;
  std::vector<ColumnBuilder> builders_;
  Table table_;
};

}  // namespace

bool is_number_text(std::string_view text) {
  const auto kind = parse_number(trimmed(text)).kind;
  return kind == ParsedNumber::Kind::integer || kind == ParsedNumber::Kind::real;
}

std::int64_t Table::find(std::string_view name) const {
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (columns[i].name == name) return static_cast<std::int64_t>(i);
  return -1;
}

std::vector<std::string> Table::names() const {
  std::vector<std::string> all;
  for (const Column& column : columns) all.push_back(column.name);
  return all;
}

Table read_table(const RandomAccessFile& file, const TableOptions& options) { return TableReader(file, options).read(); }

std::optional<double> mean_of(const Column& column, std::span<const std::int64_t> rows) {
  double mean = 0;
  std::int64_t count = 0;
  const auto add = [&](std::int64_t row) {
    if (!column.missing.empty() && std::ranges::binary_search(column.missing, row)) return;
    mean += (column.number(row) - mean) / static_cast<double>(++count);
  };
  const auto all = static_cast<std::int64_t>(std::max(column.integers.size(), column.reals.size()));
  if (rows.empty())
    for (std::int64_t row = 0; row < all; ++row) add(row);
  for (const std::int64_t row : rows) add(row);
  return count > 0 ? std::optional(mean) : std::nullopt;
}

void fill_missing(Column& column, MissingPolicy policy, const std::string& path, std::optional<double> mean) {
  if (column.missing.empty() || policy == MissingPolicy::refuse) return;
  if (column.kind == Column::Kind::categories) {  // "" is before all others, and no field has it
    column.classes.insert(column.classes.begin(), "");
    for (std::int64_t& id : column.integers) ++id;
    for (const std::int64_t row : column.missing) column.integers[static_cast<std::size_t>(row)] = 0;
    return;
  }
  if (policy == MissingPolicy::zero) return;
  if (!mean) mean = mean_of(column);
  check_user(mean.has_value(), "'", path, "', column '", column.name, "': it has no value of which to take the mean");
  check_user(std::isfinite(*mean), "'", path, "', column '", column.name, "': its mean is beyond the range of numbers");
  if (column.kind == Column::Kind::integers) column.reals.assign(column.integers.begin(), column.integers.end());
  column.integers = {};
  column.kind = Column::Kind::reals;
  for (const std::int64_t row : column.missing) column.reals[static_cast<std::size_t>(row)] = *mean;
}

void number_as(Column& column, const std::vector<std::string>& classes, const std::string& path, const std::string& source) {
  std::vector<std::int64_t> numbers;
  for (const std::string& name : column.classes) {
    const auto place = std::ranges::find(classes, name);
    check_user(place != classes.end(), "'", path, "', column '", column.name, "': ", shown_field(name), " is none of the ",
               classes.size(), " classes that '", source, "' has there",
               classes.size() <= 20 ? concat(": ", listing(classes)) : "");
    numbers.push_back(place - classes.begin());
  }
  for (std::int64_t& id : column.integers) id = numbers[static_cast<std::size_t>(id)];
  column.classes = classes;
}

}  // namespace gcomp::data
