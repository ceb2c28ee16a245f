#include "data/order/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "ir/base/philox.h"

namespace gcomp::data {
namespace {

constexpr OptionDef kBalancedOptions[] = {OptionDef::word("array", "label", "").says("array of the classes, whole numbers")};
constexpr OptionDef kWeightedOptions[] = {OptionDef::word("weights", "", "").says("array of the weights, 0 or more")};
constexpr Definition kBalanced{"balanced", "a class uniformly, then one of its rows", kBalancedOptions};
constexpr Definition kWeighted{"weighted", "rows by weights that the data have", kWeightedOptions};
constexpr const Definition* kSamplings[] = {&kBalanced, &kWeighted};

/// Two numbers for each position, apart from those of the order of epochs and of a graph's ops.
std::pair<std::uint64_t, std::uint64_t> drawn_numbers(std::uint64_t seed, std::int64_t epoch, std::int64_t position) {
  constexpr std::uint32_t kSamplingDomain = 0xfffffffd;
  const auto at = static_cast<std::uint64_t>(position);
  const auto words = philox4x32_10(
      {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32), static_cast<std::uint32_t>(epoch), kSamplingDomain},
      philox_key(seed));
  return {words[0] | std::uint64_t{words[1]} << 32, words[2] | std::uint64_t{words[3]} << 32};
}

/// A number below `count`, each equally likely but for 2^-64.
std::uint64_t scaled(std::uint64_t number, std::uint64_t count) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(number) * count >> 64);
}

struct RowsOfClasses {
  std::vector<std::int64_t> rows;   ///< those of a class beside one another
  std::vector<std::size_t> begins;  ///< of each class, and the end
};

RowsOfClasses rows_by_class(std::span<const std::int64_t> classes) {
  std::map<std::int64_t, std::size_t> counts;
  for (const std::int64_t label : classes) ++counts[label];
  RowsOfClasses made{.rows = std::vector<std::int64_t>(classes.size()), .begins = {0}};
  for (auto& [label, count] : counts) {
    made.begins.push_back(made.begins.back() + count);
    count = made.begins[made.begins.size() - 2];  // from now on where the next row of the class goes
  }
  for (std::size_t row = 0; row < classes.size(); ++row) made.rows[counts[classes[row]]++] = static_cast<std::int64_t>(row);
  return made;
}

/// Of all rows, as doubles: labels beyond 2^53 are no labels.
std::vector<double> numbers_of(const Dataset& data, const std::string& name, const std::string& what) {
  const std::vector<NamedType> arrays = data.arrays();
  const auto found = std::ranges::find(arrays, name, &NamedType::first);
  if (found == arrays.end()) {
    std::vector<std::string> names;
    for (const NamedType& array : arrays) names.push_back(array.first);
    throw UserError(
        concat(what, "'", data.source(), "' has no array '", name, "', it has ", listing(names), did_you_mean(name, names)));
  }
  const bool one_number = std::ranges::all_of(found->second.shape, [](std::int64_t size) { return size == 1; });
  check_user(one_number, what, "'", name, "' of '", data.source(), "' is ", to_string(found->second),
             ", wanted one number in each row");
  const auto array = static_cast<std::size_t>(found - arrays.begin());
  Tensor one(found->second.dtype, {1});
  std::vector<double> numbers;
  numbers.reserve(static_cast<std::size_t>(data.rows()));
  for (std::int64_t row = 0; row < data.rows(); ++row) {
    data.fetch(array, row, one.bytes());
    numbers.push_back(one.at(0));
  }
  return numbers;
}

std::vector<std::int64_t> whole_numbers(const std::vector<double>& numbers, const std::string& what) {
  std::vector<std::int64_t> whole;
  whole.reserve(numbers.size());
  for (const double number : numbers) {
    check_user(std::abs(number) < 0x1p53 && number == std::trunc(number), what, "row ", whole.size(), " has the class ", number,
               ", wanted a whole number");
    whole.push_back(static_cast<std::int64_t>(number));
  }
  return whole;
}

}  // namespace

std::span<const Definition* const> sampling_definitions() { return kSamplings; }

Sampling::Sampling(std::string_view text) : options_(parse_call(text, kSamplings, "sampling", "--sample")) {}

std::string Sampling::array() const { return options_.word(&options_.definition() == &kBalanced ? "array" : "weights"); }

runtime::RowDraw Sampling::draw(const Dataset& data, std::uint64_t seed) const {
  const std::string what = concat("--sample ", options_.text(), ": ");
  if (&options_.definition() == &kBalanced) return draw_balanced(class_numbers(data, array(), what), seed);
  return draw_weighted(numbers_of(data, array(), what), seed);
}

std::vector<std::int64_t> class_numbers(const Dataset& data, const std::string& array, const std::string& what) {
  return whole_numbers(numbers_of(data, array, what), what);
}

runtime::RowDraw draw_balanced(std::span<const std::int64_t> classes, std::uint64_t seed) {
  check_user(!classes.empty(), "--sample balanced: there are no rows");
  return [of = std::make_shared<const RowsOfClasses>(rows_by_class(classes)), seed](std::int64_t epoch, std::int64_t position) {
    const auto [first, second] = drawn_numbers(seed, epoch, position);
    const std::size_t chosen = scaled(first, of->begins.size() - 1);
    const std::size_t begin = of->begins[chosen], count = of->begins[chosen + 1] - begin;
    return of->rows[begin + scaled(second, count)];
  };
}

runtime::RowDraw draw_weighted(std::span<const double> weights, std::uint64_t seed) {
  double largest = 0;
  for (std::size_t row = 0; row < weights.size(); ++row) {
    check_user(std::isfinite(weights[row]) && weights[row] >= 0, "--sample weighted: row ", row, " has the weight ", weights[row],
               ", wanted 0 or more");
    largest = std::max(largest, weights[row]);
  }
  check_user(largest > 0, "--sample weighted: all ", weights.size(), " weights are 0");
  int exponent = 0;
  std::frexp(largest, &exponent);
  // Every weight is below 2^bits units, and their sum below 2^57: exact, and far below the 2^64 that a draw is taken from.
  const int bits = std::min(48, 57 - static_cast<int>(std::bit_width(weights.size())));
  auto ends = std::make_shared<std::vector<std::uint64_t>>();
  ends->reserve(weights.size());
  std::uint64_t end = 0;
  for (const double weight : weights) {
    const auto units = static_cast<std::uint64_t>(std::llround(std::ldexp(weight, bits - exponent)));
    end += weight > 0 ? std::max<std::uint64_t>(units, 1) : 0;
    ends->push_back(end);
  }
  return [of = std::shared_ptr<const std::vector<std::uint64_t>>(ends), seed](std::int64_t epoch, std::int64_t position) {
    const std::uint64_t at = scaled(drawn_numbers(seed, epoch, position).first, of->back());
    return static_cast<std::int64_t>(std::upper_bound(of->begin(), of->end(), at) - of->begin());
  };
}

}  // namespace gcomp::data
