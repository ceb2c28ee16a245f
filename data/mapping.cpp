#include "data/mapping.h"

#include <algorithm>
#include <utility>

#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "ir/base/shape.h"

namespace gcomp::data {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);
constexpr char kUnreadLabel[] = "label";

/// An array under the name and in the shape that somebody wants.
struct Choice {
  std::size_t array = kNone;
  NamedType type = {};
  bool reshaped = false;
};

class MappedDataset final : public Dataset {
 public:
  MappedDataset(std::unique_ptr<Dataset> data, std::vector<Choice> choices)
      : data_(std::move(data)), choices_(std::move(choices)) {}

  std::string source() const override { return data_->source(); }
  std::int64_t rows() const override { return data_->rows(); }
  std::vector<NamedType> arrays() const override {
    std::vector<NamedType> types;
    for (const Choice& choice : choices_) types.push_back(choice.type);
    return types;
  }
  void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override {
    data_->fetch(choices_[array].array, row, bytes);
  }
  void fetch_in(const EpochKey& key, std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override {
    data_->fetch_in(key, choices_[array].array, row, bytes);
  }
  bool thread_safe() const override { return data_->thread_safe(); }
  bool is_in_memory() const override { return data_->is_in_memory(); }
  const Tensor* whole(std::size_t array) const override {
    return choices_[array].reshaped ? nullptr : data_->whole(choices_[array].array);
  }

 private:
  std::unique_ptr<Dataset> data_;
  std::vector<Choice> choices_;
};

Shape without_ones(const Shape& shape) {
  Shape rest;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(rest), [](std::int64_t size) { return size != 1; });
  return rest;
}

bool agree(const Shape& stored, const Shape& wanted) {
  return stored.size() == wanted.size() && std::equal(stored.begin(), stored.end(), wanted.begin(),
                                                      [](std::int64_t is, std::int64_t may) { return may < 0 || is == may; });
}

class Mapper {
 public:
  Mapper(const Dataset& data, std::span<const WantedArray> wanted)
      : data_(data), arrays_(data.arrays()), wanted_(wanted), choices_(wanted.size(), kNone), used_(arrays_.size()) {}

  Chosen choose(std::span<const MapEntry> map) {
    Chosen chosen;
    for (const MapEntry& entry : map) choose_named(entry);
    for (std::size_t i = 0; i < wanted_.size(); ++i)
      if (choices_[i] == kNone) take(i, find(wanted_[i].name));
    choose_the_only_input(chosen.notes);
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      require(i);
      chosen.arrays.push_back({wanted_[i].name, arrays_[choices_[i]].first});
    }
    return chosen;
  }

 private:
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, type] : arrays_) all.push_back(name);
    return all;
  }

  std::size_t find(std::string_view name) const {
    for (std::size_t i = 0; i < arrays_.size(); ++i)
      if (arrays_[i].first == name) return i;
    return kNone;
  }

  void take(std::size_t wanted, std::size_t array) {
    if (array == kNone) return;
    choices_[wanted] = array;
    used_[array] = true;
  }

  void choose_named(const MapEntry& entry) {
    std::vector<std::string> inputs;
    for (const WantedArray& array : wanted_) inputs.push_back(array.name);
    const auto input = std::find(inputs.begin(), inputs.end(), entry.input);
    if (input == inputs.end())
      throw UserError(concat("--map ", entry.input, "=", entry.array, ": '", entry.input,
                             "' is no input of the model and not read by its loss, which take ", listing(inputs),
                             did_you_mean(entry.input, inputs)),
                      ExitCode::usage);
    const std::size_t array = find(entry.array);
    if (array == kNone)
      throw UserError(concat("--map ", entry.input, "=", entry.array, ": '", data_.source(), "' has no array '", entry.array,
                             "', it has ", listing(names()), did_you_mean(entry.array, names())),
                      ExitCode::usage);
    const auto wanted = static_cast<std::size_t>(input - inputs.begin());
    if (choices_[wanted] != kNone)
      throw UserError(concat("--map ", entry.input, "=", entry.array, ": '", entry.input, "' is mapped to '",
                             arrays_[choices_[wanted]].first, "' before; give one of them"),
                      ExitCode::usage);
    take(wanted, array);
  }

  /// Where one is missing and one array is left, of a shape that fits. A label that nothing reads, as in `gcomp run`, feeds none.
  void choose_the_only_input(std::vector<std::string>& notes) {
    std::size_t missing = kNone;
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      if (!wanted_[i].input || choices_[i] != kNone) continue;
      if (std::exchange(missing, i) != kNone) return;
    }
    std::vector<std::size_t> left;
    for (std::size_t i = 0; i < arrays_.size(); ++i)
      if (!used_[i] && arrays_[i].first != kUnreadLabel) left.push_back(i);
    if (missing == kNone || left.size() != 1) return;
    const std::size_t array = left[0];
    const Shape& stored = arrays_[array].second.shape;
    const bool any_size = std::any_of(stored.begin(), stored.end(), [](std::int64_t size) { return size < 0; });
    if (wanted_[missing].row && !any_size && !fitting_shape(stored, *wanted_[missing].row)) return;
    take(missing, array);
    notes.push_back(concat("array '", arrays_[array].first, "' of '", data_.source(), "' feeds '", wanted_[missing].name,
                           "', the only one left for it"));
  }

  void require(std::size_t i) const {
    if (choices_[i] != kNone) return;
    const WantedArray& wanted = wanted_[i];
    std::string types;
    for (const auto& [name, type] : arrays_) types += concat(types.empty() ? "" : ", ", "'", name, "' ", to_string(type));
    const std::string nearest = did_you_mean(wanted.name, names());
    throw UserError(concat("'", data_.source(), "' has no array '", wanted.name, "'",
                           wanted.input ? ", which the model takes" : ", which the loss reads", "; each row has ", types, nearest,
                           nearest.empty() ? concat(" (--map ", wanted.name, "=ARRAY names one)") : ""));
  }

  const Dataset& data_;
  std::vector<NamedType> arrays_;
  std::span<const WantedArray> wanted_;
  std::vector<std::size_t> choices_;  // positions among the data's arrays
  std::vector<bool> used_;
};

}  // namespace

MapEntry parse_map(std::string_view text) {
  const std::size_t sign = text.find('=');
  if (sign == text.npos || sign == 0 || sign + 1 == text.size())
    throw UserError(concat("--map ", text, ": wanted INPUT=ARRAY, such as --map x=pixels"), ExitCode::usage);
  return {std::string(text.substr(0, sign)), std::string(text.substr(sign + 1))};
}

std::optional<Shape> fitting_shape(const Shape& stored, const Shape& wanted) {
  if (agree(stored, wanted)) return stored;
  if (std::any_of(stored.begin(), stored.end(), [](std::int64_t size) { return size < 0; })) return std::nullopt;
  std::int64_t elements = 1;
  for (const std::int64_t size : stored) elements *= size;
  if (wanted.size() == 1 && stored.size() > 1)
    return wanted[0] < 0 || wanted[0] == elements ? std::optional(Shape{elements}) : std::nullopt;
  if (!agree(without_ones(stored), without_ones(wanted))) return std::nullopt;
  Shape shape = wanted;
  const Shape sizes = without_ones(stored);
  auto next = sizes.begin();
  for (std::int64_t& size : shape)
    if (size != 1) size = *next++;
  return shape;
}

Chosen choose_arrays(const Dataset& data, std::span<const WantedArray> wanted, std::span<const MapEntry> map) {
  return Mapper(data, wanted).choose(map);
}

std::vector<WantedArray> under_names_of_data(std::span<const WantedArray> wanted, std::span<const MapEntry> map) {
  std::vector<WantedArray> named(wanted.begin(), wanted.end());
  for (WantedArray& array : named)
    for (const MapEntry& entry : map)
      if (entry.input == array.name) {
        array.name = entry.array;
        break;
      }
  return named;
}

std::unique_ptr<Dataset> map_arrays(std::unique_ptr<Dataset> data, std::span<const WantedArray> wanted,
                                    std::span<const MapEntry> arrays) {
  const std::vector<NamedType> types = data->arrays();
  std::vector<Choice> choices;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto found = std::find_if(types.begin(), types.end(), [&](const NamedType& t) { return t.first == arrays[i].array; });
    check_internal(found != types.end(), "no array '", arrays[i].array, "' for '", wanted[i].name, "'");
    Choice& choice = choices.emplace_back(
        Choice{.array = static_cast<std::size_t>(found - types.begin()), .type = {wanted[i].name, found->second}});
    if (!wanted[i].row) continue;
    const std::optional<Shape> fitting = fitting_shape(found->second.shape, *wanted[i].row);
    choice.reshaped = fitting && *fitting != found->second.shape;
    if (fitting) choice.type.second.shape = *fitting;
  }
  return std::make_unique<MappedDataset>(std::move(data), std::move(choices));
}

}  // namespace gcomp::data
