// Tables of text as a source: columns become arrays by name, and the numbers that a model takes as one input [batch, n] become one.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "data/tables/columns.h"
#include "data/tables/formats.h"
#include "data/tables/table_source.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"

namespace gcomp::data {
namespace {

constexpr char kLabel[] = "label", kFeatures[] = "features";
constexpr std::size_t kListedFeatures = 20;  // in a message

bool is_float_type(DType dtype) {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

/// Which columns become which arrays.
class TableArrays {
 public:
  TableArrays(const OpenRequest& request, std::string path, Table table, MissingPolicy missing)
      : request_(request), path_(std::move(path)), table_(std::move(table)), missing_(missing), taken_(table_.columns.size()) {
    kept_.source = path_;
  }

  std::unique_ptr<Source> make() && {
    note_missing();
    add_label();
    const std::vector<std::string> listed = listed_features();
    const std::vector<const WantedArray*> without = take_named(listed);
    add_features(listed, without);
    add_others();
    table_.columns.clear();
    return std::make_unique<TableSource>(std::move(path_), std::move(table_), std::move(arrays_), std::move(kept_),
                                         std::move(measured_));
  }

 private:
  std::size_t require_column(const std::string& name, std::string_view option) const {
    const std::int64_t found = table_.find(name);
    if (found < 0)
      throw UserError(concat("--data ", option, "='", name, "': '", path_, "' has no column '", name, "', it has ",
                             listing(table_.names()), did_you_mean(name, table_.names())),
                      ExitCode::usage);
    return static_cast<std::size_t>(found);
  }

  std::string place(std::int64_t row, const Column& column) const {
    return concat("'", path_, "', line ", table_.line(row), ", column '", column.name, "'");
  }

  void note_missing() {
    for (const Column& column : table_.columns)
      if (!column.missing.empty())
        table_.notes.push_back(concat("'", path_, "', column '", column.name, "': ", column.missing.size(), " of ", table_.rows,
                                      " values are missing, the first in line ", table_.line(column.missing[0])));
  }

  /// The known column that a column is, or stands for by its place in features='a,b'.
  const std::string& known_name(const Column& column) const {
    const auto found = stands_for_.find(column.name);
    return found == stands_for_.end() ? column.name : found->second;
  }

  /// Of the training rows; nothing where they are those at hand, or unknown.
  std::optional<double> known_mean(const Column& column) const {
    if (!request_.known.kept) return std::nullopt;
    const auto& means = request_.known.kept->means;
    const auto found = means.find(known_name(column));
    return found == means.end() ? std::nullopt : std::optional(found->second);
  }

  bool lacks_mean(const Column& column) const {
    return missing_ == MissingPolicy::mean && !column.missing.empty() && column.is_number() && !request_.known.trains &&
           !known_mean(column);
  }

  /// What a model reads has a value in every row.
  void settle(Column& column) const {
    if (!column.missing.empty()) {
      if (missing_ == MissingPolicy::refuse)
        throw UserError(concat(place(column.missing[0], column), ": its value is missing (", column.missing.size(), " of ",
                               table_.rows, " are); missing=mean and missing=zero fill them, drop='", column.name,
                               "' leaves the column out"));
      if (lacks_mean(column))
        throw UserError(
            concat(place(column.missing[0], column), ": its value is missing (", column.missing.size(), " of ", table_.rows,
                   " are), and missing=mean puts the mean of the training rows there, which is not known: ",
                   "a .gcx keeps it, and columns.json beside the models of a --run-dir; missing=zero needs none"),
            ExitCode::usage);
      fill_missing(column, missing_, path_, known_mean(column));
    }
    number_as_known(column);
  }

  void number_as_known(Column& column) const {
    if (!request_.known.kept) return;
    const auto& classes = request_.known.kept->classes;
    const auto found = classes.find(known_name(column));
    if (found != classes.end()) return number_as(column, found->second, path_, request_.known.kept->source);
    check_user(column.is_number() || !known_mean(column), "'", path_, "', column '", column.name, "': it has text, such as '",
               column.classes.empty() ? "" : column.classes.back(), "', wanted numbers as '", request_.known.kept->source,
               "' has there; numbers='", column.name, "' says where the text is");
  }

  /// What later tables are read by: of a column that is fed to the model, or to its loss. The label lacks no value.
  void keep(Column& column, std::size_t first, std::size_t stride, bool input) {
    if (request_.wanted.empty()) return;
    if (!column.is_number()) {
      if (input) kept_.classes.emplace(column.name, column.classes);
    } else if (const std::optional<double> mean = known_mean(column)) {
      kept_.means.emplace(column.name, *mean);
    } else if (request_.known.trains) {
      const bool fills = missing_ == MissingPolicy::mean && !column.missing.empty();
      Column moved = std::move(column);
      column.name = moved.name;
      measured_.push_back(
          {.column = std::move(moved), .array = arrays_.size() - 1, .first = first, .stride = stride, .fills = fills});
    }
  }

  /// The value as f32, of which it must be within the range.
  float as_float(const Column& column, std::int64_t row) const {
    const double value = column.number(row);
    const auto small = static_cast<float>(value);
    if (!std::isfinite(small)) throw UserError(concat(place(row, column), ": ", value, " is beyond the range of f32"));
    return small;
  }

  /// Writes the column to every `stride`-th element from `first` on.
  void write(const Column& column, Tensor& to, std::size_t first, std::size_t stride) const {
    for (std::int64_t row = 0; row < table_.rows; ++row) {
      const std::size_t at = first + stride * static_cast<std::size_t>(row);
      if (to.dtype() == DType::f32) to.as<float>()[at] = as_float(column, row);
      else if (to.dtype() == DType::f64) to.as<double>()[at] = column.number(row);
      else to.as<std::int64_t>()[at] = column.integers[static_cast<std::size_t>(row)];
    }
  }

  static DType dtype_of(bool integers, const std::optional<DType>& wanted) {
    if (wanted && is_float_type(*wanted)) return *wanted == DType::f64 ? DType::f64 : DType::f32;
    return integers ? DType::i64 : DType::f64;
  }

  /// Real numbers that a loss compares with a model's output are f32[1], as outputs of regressions are [batch, 1].
  TableArray single(std::size_t index, std::string name, const std::optional<DType>& wanted, bool of_loss = false) {
    Column& column = table_.columns[index];
    taken_[index] = true;
    TableArray array{.name = std::move(name), .classes = column.classes, .column = column.name};
    const bool integers = column.kind != Column::Kind::reals;
    if (of_loss && !integers) array.values = Tensor(wanted == DType::f64 ? DType::f64 : DType::f32, {table_.rows, 1});
    else array.values = Tensor(dtype_of(integers, wanted), {table_.rows});
    write(column, array.values, 0, 1);
    return array;
  }

  const WantedArray* wanted_of(std::string_view name) const {
    for (const WantedArray& wanted : request_.wanted)
      if (wanted.name == name) return &wanted;
    return nullptr;
  }

  std::optional<DType> wanted_type(std::string_view name) const {
    const WantedArray* wanted = wanted_of(name);
    return wanted ? wanted->dtype : std::nullopt;
  }

  void refuse_missing_label(const Column& column) const {
    if (!column.missing.empty())
      throw UserError(concat(place(column.missing[0], column), ": the label is missing, as it is in ", column.missing.size(),
                             " of ", table_.rows, " rows"));
  }

  void add_label() {
    if (!request_.options.has("label")) return;
    const std::string name = request_.options.word("label");
    const std::size_t index = require_column(name, "label");
    if (name != kLabel && table_.find(kLabel) >= 0)
      throw UserError(concat("--data label='", name, "': '", path_, "' has a column 'label' too; drop=label leaves that out"),
                      ExitCode::usage);
    Column& column = table_.columns[index];
    if (!request_.wanted.empty()) refuse_missing_label(column);
    TableArray array = single(index, kLabel, wanted_type(kLabel), true);
    array.missing = column.missing;
    arrays_.push_back(std::move(array));
  }

  /// Whether a model, or a table before, has names for the columns of its input. A table without a header has none to compare.
  bool knows_features() const {
    return request_.known.kept && !request_.known.kept->features.empty() && !request_.wanted.empty() &&
           request_.options.boolean("header");
  }

  /// Those of features='a,b', or those that are known; none where neither is.
  std::vector<std::string> listed_features() {
    const bool given = request_.options.given("features");
    const std::string text = given ? request_.options.word("features") : "";
    if (knows_features()) return known_features(given && text != "all" ? names_in(text) : std::vector<std::string>());
    if (!given) return {};
    if (text != "all") return names_in(text);
    std::vector<std::string> all;
    for (std::size_t i = 0; i < table_.columns.size(); ++i)
      if (!taken_[i] && table_.columns[i].is_number() && !is_label(i)) all.push_back(table_.columns[i].name);
    return all;
  }

  /// The columns of this table in the order of the known ones: by name, but for those that features='a,b' lists in their places.
  std::vector<std::string> known_features(const std::vector<std::string>& given) {
    const std::vector<std::string>& known = request_.known.kept->features;
    const bool renames = !given.empty() && !std::ranges::is_permutation(given, known);
    if (renames) check_places(given, known);
    std::vector<std::size_t> columns;
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (renames) {
        columns.push_back(require_column(given[i], "features"));
        stands_for_.emplace(given[i], known[i]);
      } else {
        if (table_.find(known[i]) < 0) refuse_lacking(known[i]);
        columns.push_back(static_cast<std::size_t>(table_.find(known[i])));
      }
    }
    if (!renames && !std::ranges::is_sorted(columns))
      table_.notes.push_back(concat("'", path_, "' has its columns in another order than '", request_.known.kept->source,
                                    "'; they are taken by name"));
    if (given.empty()) note_extra(columns);
    std::vector<std::string> names;
    for (const std::size_t i : columns) names.push_back(table_.columns[i].name);
    return names;
  }

  void refuse_lacking(const std::string& name) const {
    const std::vector<std::string>& known = request_.known.kept->features;
    const std::string all = known.size() <= kListedFeatures ? concat(": ", listing(known)) : "";
    throw UserError(concat("'", path_, "' has no column '", name, "', which is one of the ", known.size(), " features of '",
                           request_.known.kept->source, "'", all,
                           "; features='COLUMN,...' names the columns that stand for them, in their order",
                           did_you_mean(name, table_.names())));
  }

  /// Columns of other names may stand for the known ones, each in its place.
  void check_places(const std::vector<std::string>& given, const std::vector<std::string>& known) const {
    for (std::size_t i = 0; i < given.size(); ++i) {
      const auto place = std::ranges::find(known, given[i]);
      if (given.size() == known.size() && (place == known.end() || place - known.begin() == static_cast<std::ptrdiff_t>(i)))
        continue;
      throw UserError(
          concat("--data features=: '", path_, "' is given ", given.size(), given.size() == 1 ? " column" : " columns", ", '",
                 given[i], "' as number ", i + 1, "; wanted the ", known.size(), " of '", request_.known.kept->source, "'",
                 known.size() <= kListedFeatures ? concat(", ", listing(known), ",") : "", " or others in their places"),
          ExitCode::usage);
    }
  }

  void note_extra(const std::vector<std::size_t>& columns) {
    std::vector<std::string> extra;
    for (std::size_t i = 0; i < table_.columns.size(); ++i)
      if (table_.columns[i].is_number() && !taken_[i] && !wanted_of(table_.columns[i].name) && !is_label(i) &&
          std::ranges::find(columns, i) == columns.end())
        extra.push_back(table_.columns[i].name);
    if (extra.empty()) return;
    table_.notes.push_back(concat("'", path_, "': ", listing(extra), extra.size() == 1 ? " is no feature" : " are no features",
                                  " of '", request_.known.kept->source, "' and left out"));
  }

  bool is_label(std::size_t index) const { return table_.columns[index].name == kLabel; }

 public:
  /// Names between commas; one that has a comma stands in double quotes.
  static std::vector<std::string> names_in(std::string_view text) {
    std::vector<std::string> names;
    for (std::size_t at = 0; at <= text.size();) {
      const bool quoted = at < text.size() && text[at] == '"' && text.find('"', at + 1) != text.npos;
      const std::size_t end = std::min(text.find(',', quoted ? text.find('"', at + 1) : at), text.size());
      std::string_view name = text.substr(at, end - at);
      if (quoted) name = name.substr(1, name.rfind('"') - 1);
      while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
      while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
      if (!name.empty()) names.emplace_back(name);
      at = end + 1;
    }
    return names;
  }

 private:
  /// Arrays that bear a column's name; gives the inputs that have none.
  std::vector<const WantedArray*> take_named(const std::vector<std::string>& listed) {
    std::vector<const WantedArray*> without;
    const bool one_input = std::ranges::count(request_.wanted, true, &WantedArray::input) == 1;
    for (const WantedArray& wanted : request_.wanted) {
      const bool is_fed = one_input && wanted.input && knows_features();  // by them, whatever a column is called
      const std::int64_t found = is_fed ? -1 : table_.find(wanted.name);
      const bool has_label = !arrays_.empty() && wanted.name == kLabel;
      const bool is_listed = std::ranges::find(listed, wanted.name) != listed.end();
      if (!has_label && found >= 0 && !is_listed && !taken_[static_cast<std::size_t>(found)]) {
        if (wanted.name == kLabel) refuse_missing_label(table_.columns[static_cast<std::size_t>(found)]);
        settle(table_.columns[static_cast<std::size_t>(found)]);
        arrays_.push_back(single(static_cast<std::size_t>(found), wanted.name, wanted.dtype, !wanted.input));
        if (wanted.input) arrays_.back().classes.clear();
        if (wanted.name != kLabel) keep(table_.columns[static_cast<std::size_t>(found)], 0, 1, wanted.input);
      } else if (!has_label && wanted.input) {
        without.push_back(&wanted);
      }
    }
    return without;
  }

  void add_features(const std::vector<std::string>& listed, const std::vector<const WantedArray*>& without) {
    const WantedArray* wanted = without.size() == 1 ? without[0] : nullptr;
    std::vector<std::size_t> columns;
    for (const std::string& name : listed) columns.push_back(require_column(name, "features"));
    if (listed.empty()) {
      if (!wanted || (wanted->row && wanted->row->empty())) return;
      for (std::size_t i = 0; i < table_.columns.size(); ++i)
        if (!taken_[i] && table_.columns[i].is_number() && !is_label(i)) columns.push_back(i);
    }
    if (columns.empty()) return;
    const Shape row = row_shape(columns, wanted);
    Shape shape{table_.rows};
    shape.insert(shape.end(), row.begin(), row.end());
    bool integers = true;
    for (const std::size_t i : columns) {
      settle(table_.columns[i]);
      integers = integers && table_.columns[i].kind != Column::Kind::reals;
    }
    TableArray array{.name = wanted ? wanted->name : kFeatures};
    array.values = Tensor(dtype_of(integers, wanted ? wanted->dtype : std::nullopt), std::move(shape));
    for (std::size_t i = 0; i < columns.size(); ++i) {
      write(table_.columns[columns[i]], array.values, i, columns.size());
      taken_[columns[i]] = true;
    }
    arrays_.push_back(std::move(array));
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (request_.options.boolean("header")) kept_.features.push_back(table_.columns[columns[i]].name);
      keep(table_.columns[columns[i]], i, columns.size(), true);
    }
  }

  /// Of the input, where its elements are as many as the columns.
  Shape row_shape(const std::vector<std::size_t>& columns, const WantedArray* wanted) const {
    const auto count = static_cast<std::int64_t>(columns.size());
    if (!wanted || !wanted->row || std::ranges::any_of(*wanted->row, [](std::int64_t size) { return size < 0; })) return {count};
    std::int64_t elements = 1;
    for (const std::int64_t size : *wanted->row) elements = size > 0 && elements > (1 << 30) / size ? 1 << 30 : elements * size;
    if (elements == count) return *wanted->row;
    std::vector<std::string> taken, left;
    for (const std::size_t i : columns) taken.push_back(table_.columns[i].name);
    for (std::size_t i = 0; i < table_.columns.size(); ++i)
      if (!table_.columns[i].is_number() && !taken_[i]) left.push_back(table_.columns[i].name);
    throw UserError(
        concat("'", path_, "': the model's input '", wanted->name, "' takes ", elements, " numbers a row, but ", count,
               count == 1 ? " column has" : " columns have", " numbers that nothing else takes: ", listing(taken),
               left.empty() ? "" : concat("; text is in ", listing(left)),
               "; label=COLUMN names the label, drop='COLUMN,...' leaves columns out, features='COLUMN,...' names those "
               "that are taken"));
  }

  /// For --map and messages, and for who looks at the table without a model. Then what is missing is missing in its row alone.
  void add_others() {
    const bool looks = request_.wanted.empty();
    const bool labelled = std::ranges::find(arrays_, kLabel, &TableArray::name) != arrays_.end();
    for (std::size_t i = 0; i < table_.columns.size(); ++i) {
      Column& column = table_.columns[i];
      if (taken_[i] || (!looks && !column.missing.empty() && (missing_ == MissingPolicy::refuse || lacks_mean(column)))) continue;
      if (missing_ != MissingPolicy::refuse && column.missing.size() < static_cast<std::size_t>(table_.rows)) settle(column);
      TableArray array = single(i, column.name, std::nullopt, column.name == kLabel);
      if (missing_ == MissingPolicy::refuse) array.missing = column.missing;
      if (!looks && labelled) array.classes.clear();
      arrays_.push_back(std::move(array));
    }
  }

  const OpenRequest& request_;
  std::string path_;
  Table table_;
  MissingPolicy missing_;
  std::vector<bool> taken_;
  std::vector<TableArray> arrays_;
  std::map<std::string, std::string> stands_for_;
  KeptColumns kept_;
  std::vector<MeasuredColumn> measured_;
};

std::vector<std::string> name_list(const Options& options, std::string_view option) {
  return options.has(option) ? TableArrays::names_in(options.word(option)) : std::vector<std::string>();
}

std::vector<std::string> known_categories(const KnownColumns& known) {
  std::vector<std::string> names;
  if (known.kept)
    for (const auto& [column, classes] : known.kept->classes) names.push_back(column);
  return names;
}

MissingPolicy missing_policy(const Options& options) {
  const std::string word = options.word("missing");
  return word == "mean" ? MissingPolicy::mean : word == "zero" ? MissingPolicy::zero : MissingPolicy::refuse;
}

char separator_of(const Options& options) {
  if (!options.knows("separator")) return '\t';
  const std::string text = options.word("separator");
  const bool fits = text.size() == 1 && text[0] != '"' && text[0] != '\n' && text[0] != '\r' && text[0] != '\0';
  if (!fits && text != "tab")
    throw UserError(concat("--data separator: found '", text, "', wanted one byte that is no quote, or tab"), ExitCode::usage);
  return fits ? text[0] : '\t';
}

std::unique_ptr<Source> open_table(const OpenRequest& request) {
  const RandomAccessFile file(request.path);
  const Options& options = request.options;
  Table table = read_table(file, {.separator = separator_of(options),
                                  .header = options.boolean("header"),
                                  .header_given = options.given("header"),
                                  .categories = name_list(options, "categories"),
                                  .numbers = name_list(options, "numbers"),
                                  .drop = name_list(options, "drop"),
                                  .known_categories = known_categories(request.known)});
  return TableArrays(request, file.path(), std::move(table), missing_policy(options)).make();
}

/// How many fields the line has, quotes considered; 0 where it is not whole.
std::size_t fields_of_line(std::string_view& text, char separator) {
  std::size_t fields = 1;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') quoted = !quoted;
    if (quoted) continue;
    fields += text[at] == separator;
    if (text[at] != '\n') continue;
    text.remove_prefix(at + 1);
    return fields;
  }
  return 0;
}

/// By its ending, or where two lines have as many fields. Prose has such lines too, so that .txt is not a table.
bool is_table(const PathFacts& facts, std::string_view ending, char separator) {
  if (facts.folder || facts.size == 0) return false;
  std::string_view text(reinterpret_cast<const char*>(facts.head.data()), facts.head.size());
  if (text.find('\0') != text.npos) return false;
  const std::string extension = facts.path.extension().string();
  if (extension == ending) return true;
  if (extension == ".csv" || extension == ".tsv" || extension == ".txt" || extension == ".json") return false;
  const std::size_t first = fields_of_line(text, separator);
  return first >= 2 && fields_of_line(text, separator) == first;
}

bool recognises_csv(const PathFacts& facts) { return is_table(facts, ".csv", ','); }
bool recognises_tsv(const PathFacts& facts) { return is_table(facts, ".tsv", '\t'); }

constexpr OptionDef kHeaderOption =
    OptionDef::boolean("header", "true").says("whether the first line has the columns' names; without it they are c0, c1, ...");
constexpr OptionDef kLabelOption = OptionDef::word("label", "none", "").or_none().says("the column that becomes the array label");
constexpr OptionDef kFeaturesOption = OptionDef::word("features", "none", "")
                                          .or_none()
                                          .says(
                                              "the columns that are one array [n], in this order: 'a,b', or all that have numbers; "
                                              "none: those that nothing else takes");
constexpr OptionDef kCategoriesOption =
    OptionDef::word("categories", "none", "").or_none().says("columns whose values are classes, numbers though they may be");
constexpr OptionDef kNumbersOption =
    OptionDef::word("numbers", "none", "").or_none().says("columns of real numbers; text in them is an error");
constexpr OptionDef kDropOption = OptionDef::word("drop", "none", "").or_none().says("columns that are left out");
constexpr OptionDef kMissingOption =
    OptionDef::word("missing", "refuse", "refuse|mean|zero").says("what stands for missing numbers");

constexpr OptionDef kCsvOptions[] = {
    kLabelOption,   kFeaturesOption,
    kDropOption,    kCategoriesOption,
    kNumbersOption, kMissingOption,
    kHeaderOption,  OptionDef::word("separator", "\",\"", "").says("what stands between fields: a byte, or tab"),
};
constexpr OptionDef kTsvOptions[] = {kLabelOption,   kFeaturesOption, kDropOption,  kCategoriesOption,
                                     kNumbersOption, kMissingOption,  kHeaderOption};

}  // namespace

constinit const Format kCsvFormat{{"csv", "a table of text, fields separated by commas", kCsvOptions}, recognises_csv, open_table};
constinit const Format kTsvFormat{{"tsv", "a table of text, fields separated by tabs", kTsvOptions}, recognises_tsv, open_table};

}  // namespace gcomp::data
