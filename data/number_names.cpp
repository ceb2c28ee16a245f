#include "data/number_names.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "data/vocabulary_file.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "ir/base/tensor.h"

namespace gcomp::data {
namespace {

/// Its place says the old number.
using NewNumbers = std::vector<std::int64_t>;
constexpr std::size_t kListed = 20;  // names in a message

/// Numbers behind the last, such as a label that is left out of the loss, stay as they are.
void renumber(const NewNumbers& numbers, DType dtype, std::span<std::byte> bytes) {
  const auto count = static_cast<std::int64_t>(bytes.size() / size_of(dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    const double number = load_as_double(dtype, bytes.data(), i);
    if (number >= 0 && number < static_cast<double>(numbers.size()))
      store_from_double(dtype, bytes.data(), i, static_cast<double>(numbers[static_cast<std::size_t>(number)]));
  }
}

/// `what`: "class" or "token".
NewNumbers new_numbers(const std::vector<std::string>& found, const std::vector<std::string>& wanted, std::string_view what,
                       const std::string& source, const std::string& other) {
  std::unordered_map<std::string_view, std::int64_t> places;
  for (std::size_t i = 0; i < wanted.size(); ++i) places.emplace(wanted[i], static_cast<std::int64_t>(i));
  NewNumbers numbers;
  for (const std::string& name : found) {
    const auto place = places.find(name);
    if (place == places.end())
      throw UserError(concat("'", source, "' has the ", what, " '", name, "', which '", other, "' does not have: that has ",
                             wanted.size(), wanted.size() <= kListed ? concat(", ", listing(wanted)) : ""));
    numbers.push_back(place->second);
  }
  return numbers;
}

/// Null where nothing names them.
const std::vector<std::string>* classes_of(const NumberNames& names, const std::string& array) {
  const auto known = names.classes.find(array), any = names.classes.find("");
  return known != names.classes.end() ? &known->second : any != names.classes.end() ? &any->second : nullptr;
}

std::string note_of(std::string_view what, std::size_t found, std::size_t wanted, const NumberNames& names,
                    const std::string& source) {
  return concat("'", source, "' has ", found, " of the ", wanted, " ", what, " of '", names.source,
                "' and counts them as that does");
}

class Renumbered final : public Source {
 public:
  /// A vector for each array, of no numbers where it stays as it is.
  Renumbered(std::unique_ptr<Source> source, std::vector<NewNumbers> numbers, const NumberNames& names, std::string note)
      : source_(std::move(source)),
        types_(source_->arrays()),
        numbers_(std::move(numbers)),
        vocabulary_(source_->vocabulary().empty() ? "" : names.vocabulary),
        note_(std::move(note)) {
    for (std::size_t i = 0; i < types_.size(); ++i) {
      const std::vector<std::string>* known = classes_of(names, types_[i].first);
      classes_.push_back(!known || source_->class_names(i).empty() ? source_->class_names(i) : *known);
      const Tensor* whole = source_->whole(i);
      whole_.push_back(whole && !numbers_[i].empty() ? std::optional(*whole) : std::nullopt);
      if (whole_.back()) renumber(numbers_[i], whole->dtype(), whole_.back()->bytes());
    }
  }

  std::string source() const override { return source_->source(); }
  std::int64_t rows() const override { return source_->rows(); }
  std::vector<NamedType> arrays() const override { return types_; }
  bool thread_safe() const override { return source_->thread_safe(); }
  bool is_in_memory() const override { return source_->is_in_memory(); }
  std::string where(std::int64_t row) const override { return source_->where(row); }
  const ImageSource* images(std::size_t array) const override { return source_->images(array); }
  std::vector<std::string> class_names(std::size_t array) const override { return classes_[array]; }
  bool is_sequence() const override { return source_->is_sequence(); }
  std::int64_t overlap() const override { return source_->overlap(); }
  std::string vocabulary() const override { return vocabulary_; }
  KeptColumns columns() const override { return source_->columns(); }
  void take_means(std::span<const std::int64_t> rows) override { source_->take_means(rows); }
  const Tensor* whole(std::size_t array) const override { return whole_[array] ? &*whole_[array] : source_->whole(array); }
  std::vector<std::string> notes() const override {
    std::vector<std::string> notes = source_->notes();
    notes.push_back(note_);
    return notes;
  }

  void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override {
    source_->fetch(array, row, bytes);
    renumber(numbers_[array], types_[array].second.dtype, bytes);
  }
  void fetch_in(const EpochKey& key, std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override {
    source_->fetch_in(key, array, row, bytes);
    renumber(numbers_[array], types_[array].second.dtype, bytes);
  }

 private:
  std::unique_ptr<Source> source_;
  std::vector<NamedType> types_;
  std::vector<NewNumbers> numbers_;
  std::vector<std::vector<std::string>> classes_;
  std::vector<std::optional<Tensor>> whole_;
  std::string vocabulary_, note_;
};

/// Of tokens; nothing where both count them alike.
NewNumbers new_tokens(const Source& source, const NumberNames& names, std::string& note) {
  if (source.vocabulary().empty() || names.vocabulary.empty() || source.vocabulary() == names.vocabulary) return {};
  const VocabularyFile found = parse_vocabulary(source.vocabulary()), wanted = parse_vocabulary(names.vocabulary);
  const auto kind = [](const VocabularyFile& vocabulary) { return vocabulary.unit == TextUnit::bytes ? "bytes" : "characters"; };
  check_user(found.unit == wanted.unit, "'", source.source(), "' is read as ", kind(found), ", '", names.source, "' as ",
             kind(wanted), "; unit=bytes reads both as bytes");
  note = note_of("tokens", found.tokens.size(), wanted.tokens.size(), names, source.source());
  return new_numbers(found.tokens, wanted.tokens, "token", source.source(), names.source);
}

nlohmann::json json_of(const KeptColumns& columns) {
  nlohmann::json object{{"source", columns.source}};
  if (!columns.features.empty()) object["features"] = columns.features;
  if (!columns.means.empty()) object["means"] = columns.means;
  if (!columns.classes.empty()) object["classes"] = columns.classes;
  return object;
}

KeptColumns columns_of(const nlohmann::json& object) {
  KeptColumns columns{.source = object.value("source", "")};
  if (object.contains("features")) object["features"].get_to(columns.features);
  if (object.contains("means")) object["means"].get_to(columns.means);
  if (object.contains("classes")) object["classes"].get_to(columns.classes);
  return columns;
}

}  // namespace

NumberNames number_names(const Source& source) {
  NumberNames names{.source = source.source(), .classes = {}, .vocabulary = source.vocabulary(), .columns = source.columns()};
  const std::vector<NamedType> arrays = source.arrays();
  for (std::size_t i = 0; i < arrays.size(); ++i)
    if (std::vector<std::string> classes = source.class_names(i); !classes.empty())
      names.classes.emplace(arrays[i].first, std::move(classes));
  return names;
}

std::string text_of(const NumberNames& names) {
  nlohmann::json object;
  if (!names.classes.empty()) object["classes"] = names.classes;
  if (!names.vocabulary.empty()) object["vocabulary"] = names.vocabulary;
  if (!names.columns.empty()) object["columns"] = json_of(names.columns);
  if (object.empty()) return "";
  object["source"] = names.source;
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

NumberNames parse_number_names(std::string_view text) {
  try {
    const nlohmann::json object = nlohmann::json::parse(text);
    NumberNames names{.source = object.at("source"), .classes = {}, .vocabulary = object.value("vocabulary", "")};
    if (object.contains("classes")) object["classes"].get_to(names.classes);
    if (object.contains("columns")) names.columns = columns_of(object["columns"]);
    return names;
  } catch (const nlohmann::json::exception& error) { throw UserError(concat("names of numbers: ", error.what())); }
}

std::string text_of(const KeptColumns& columns) {
  return columns.empty() ? "" : json_of(columns).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

KeptColumns parse_columns(std::string_view text) {
  try {
    const nlohmann::json object = nlohmann::json::parse(text);
    check_user(object.is_object(), "wanted an object with features, means or classes");
    return columns_of(object);
  } catch (const nlohmann::json::exception& error) {
    throw UserError(concat("wanted lists of names and means by name: ", error.what()));
  }
}

std::unique_ptr<Source> numbered_as(std::unique_ptr<Source> source, const NumberNames& names) {
  const std::vector<NamedType> arrays = source->arrays();
  std::string note;
  std::vector<NewNumbers> numbers(arrays.size(), new_tokens(*source, names, note));
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const std::vector<std::string>* known = classes_of(names, arrays[i].first);
    const std::vector<std::string> found = source->class_names(i);
    if (!known || found.empty() || found == *known) continue;
    numbers[i] = new_numbers(found, *known, concat("class of '", arrays[i].first, "'"), source->source(), names.source);
    note = note_of(concat("classes of '", arrays[i].first, "'"), found.size(), known->size(), names, source->source());
  }
  if (note.empty()) return source;
  return std::make_unique<Renumbered>(std::move(source), std::move(numbers), names, std::move(note));
}

}  // namespace gcomp::data
