// gcomp data inspect: what data hold, one fact a line, and a sheet of samples.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/format.h"
#include "data/images/png.h"
#include "ir/base/error.h"
#include "runtime/files/atomic_file.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/contact_sheet.h"
#include "tools/gcomp/data_rows.h"
#include "tools/gcomp/outputs.h"
#include "tools/gcomp/report.h"

namespace gcomp::tools {
namespace {

using nlohmann::json;

constexpr std::int64_t kChunk = 64;           // rows that one thread takes at once
constexpr std::size_t kMostCounted = 10'000;  // kinds of values of an array that are counted
constexpr std::size_t kShownLabels = 20, kShownBad = 10;
constexpr std::int64_t kTiles = 48;
constexpr int kBar = 30;

struct DataInspectFlags {
  DataSpecFlags data;
  std::int64_t rows = 5, sample = 0;
  int workers = 0;
  std::string preview;
};

/// Of the elements of an array. Parts are joined in the order of the rows, so that threads change no digit.
struct ArrayFacts {
  std::int64_t elements = 0, not_finite = 0;
  double low = std::numeric_limits<double>::infinity(), high = -low, sum = 0;
  std::map<std::int64_t, std::int64_t> counts = {};  ///< of whole numbers, one a row
  int least_height = std::numeric_limits<int>::max(), most_height = 0, least_width = least_height, most_width = 0, grey = 0;

  void add(double value) {
    ++elements;
    if (!std::isfinite(value)) {
      ++not_finite;
      return;
    }
    low = std::min(low, value), high = std::max(high, value), sum += value;
  }
  void add(const data::Image& image) {
    least_height = std::min(least_height, image.height), most_height = std::max(most_height, image.height);
    least_width = std::min(least_width, image.width), most_width = std::max(most_width, image.width);
    grey += image.channels == 1;
    for (const std::uint8_t pixel : image.pixels) add(pixel);
  }
  void join(const ArrayFacts& other) {
    elements += other.elements, not_finite += other.not_finite, sum += other.sum, grey += other.grey;
    low = std::min(low, other.low), high = std::max(high, other.high);
    least_height = std::min(least_height, other.least_height), most_height = std::max(most_height, other.most_height);
    least_width = std::min(least_width, other.least_width), most_width = std::max(most_width, other.most_width);
    for (const auto& [value, count] : other.counts)
      if (counts.size() < kMostCounted || counts.contains(value)) counts[value] += count;
  }
  double mean() const { return sum / static_cast<double>(elements - not_finite); }
};

struct BadRow {
  std::int64_t row = 0;
  std::string reason;
};

struct DataFacts {
  std::vector<ArrayFacts> arrays;
  std::vector<BadRow> bad;
  std::int64_t read = 0;
};

bool is_counted(const TensorType& row) {
  return row.shape.empty() && row.dtype != DType::f64 && row.dtype != DType::f32 && row.dtype != DType::f16 &&
         row.dtype != DType::bf16;
}

void add_values(const Tensor& values, bool counted, ArrayFacts& facts) {
  if (values.dtype() == DType::u8)
    for (const std::uint8_t value : values.as<std::uint8_t>()) facts.add(value);
  else
    for (const double value : values.to_doubles()) facts.add(value);
  if (counted) ++facts.counts[values.to_integers()[0]];
}

/// The row's arrays as far as they can be read.
void add_row(SampleRow& row, std::int64_t at, const EpochKey* key, const std::vector<NamedType>& arrays, DataFacts& facts) {
  bool bad = false;
  for (std::size_t i = 0; i < arrays.size(); ++i) try {
      row.read(i, at, key);
      if (row.is_image(i)) facts.arrays[i].add(row.image(i));
      else add_values(row.values(i), is_counted(arrays[i].second), facts.arrays[i]);
    } catch (const UserError& error) {
      if (!std::exchange(bad, true)) facts.bad.push_back({at, error.what()});
    }
}

DataFacts read_facts(const data::Source& source, const DataInspectFlags& flags) {
  const std::int64_t rows = source.rows();
  const std::vector<NamedType> arrays = source.arrays();
  DataFacts all{
      .arrays = std::vector<ArrayFacts>(arrays.size()), .bad = {}, .read = flags.sample > 0 ? std::min(flags.sample, rows) : rows};
  const int workers = worker_count(flags.workers, source);
  std::vector<std::unique_ptr<SampleRow>> memory(static_cast<std::size_t>(workers));
  const EpochKey key{.seed = static_cast<std::uint64_t>(flags.data.seed)};
  // Some chunks at a time: their facts wait for those before them.
  for (std::int64_t begin = 0; begin < all.read; begin += kChunk * 64) {
    const std::int64_t chunks = (std::min(kChunk * 64, all.read - begin) + kChunk - 1) / kChunk;
    std::vector<DataFacts> parts(static_cast<std::size_t>(chunks));
    for_each_index(chunks, workers, [&](int worker, std::int64_t chunk) {
      std::unique_ptr<SampleRow>& row = memory[static_cast<std::size_t>(worker)];
      if (!row) row = std::make_unique<SampleRow>(source);
      DataFacts& part = parts[static_cast<std::size_t>(chunk)];
      part.arrays.resize(arrays.size());
      const std::int64_t first = begin + chunk * kChunk;
      for (std::int64_t i = first; i < std::min(first + kChunk, all.read); ++i) {
        const auto at = static_cast<std::int64_t>(static_cast<__int128>(i) * rows / all.read);
        add_row(*row, at, flags.data.augment.empty() ? nullptr : &key, arrays, part);
      }
    });
    for (DataFacts& part : parts) {
      for (std::size_t i = 0; i < arrays.size(); ++i) all.arrays[i].join(part.arrays[i]);
      for (BadRow& bad : part.bad) all.bad.push_back(std::move(bad));
    }
  }
  return all;
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string range_of_sizes(int low, int high) { return low == high ? std::to_string(low) : concat(low, " to ", high); }

std::string class_name(const std::vector<std::string>& names, std::int64_t value) {
  return value >= 0 && value < std::ssize(names) ? names[static_cast<std::size_t>(value)] : std::to_string(value);
}

/// "label: i64[], from 0 to 2, mean 1".
std::string array_line(const NamedType& array, const ArrayFacts& facts, bool images) {
  std::string line = concat("array: ", array.first, ": ", images ? std::string("images") : to_string(array.second));
  if (facts.elements == 0) return line;
  if (images)
    line += concat(" of ", range_of_sizes(facts.least_width, facts.most_width), " x ",
                   range_of_sizes(facts.least_height, facts.most_height), " pixels, ", facts.grey, " of them grey");
  if (facts.elements > facts.not_finite)
    line += concat(", from ", number_text(facts.low), " to ", number_text(facts.high), ", mean ", number_text(facts.mean()));
  return facts.not_finite == 0 ? line : concat(line, ", ", grouped(facts.not_finite), " not finite");
}

json array_json(const NamedType& array, const ArrayFacts& facts, bool images, const std::vector<std::string>& names) {
  json entry{{"name", array.first}, {"type", to_string(array.second)}, {"elements", facts.elements}};
  if (facts.elements > facts.not_finite) entry["min"] = facts.low, entry["max"] = facts.high, entry["mean"] = facts.mean();
  entry["not_finite"] = facts.not_finite;
  if (images && facts.elements > 0)
    entry["images"] = {{"width", {facts.least_width, facts.most_width}},
                       {"height", {facts.least_height, facts.most_height}},
                       {"grey", facts.grey}};
  if (!names.empty()) entry["classes"] = names;
  if (facts.counts.empty() || (array.first != "label" && names.empty())) return entry;
  json counts = json::array();
  for (const auto& [value, count] : facts.counts)
    counts.push_back({{"value", value}, {"name", class_name(names, value)}, {"rows", count}});
  entry["counts"] = counts;
  return entry;
}

/// A line with a bar for each value, the most frequent first.
void show_counts(const Console& console, const NamedType& array, const ArrayFacts& facts, const std::vector<std::string>& names) {
  if (facts.counts.empty() || (array.first != "label" && names.empty())) return;
  std::vector<std::pair<std::int64_t, std::int64_t>> sorted(facts.counts.begin(), facts.counts.end());
  std::ranges::stable_sort(sorted, std::greater<>(), [](const auto& entry) { return entry.second; });
  const std::size_t shown = std::min(sorted.size(), kShownLabels);
  std::size_t width = 0;
  for (std::size_t i = 0; i < shown; ++i)
    width = std::max(width, std::min<std::size_t>(40, class_name(names, sorted[i].first).size()));
  for (std::size_t i = 0; i < shown; ++i) {
    const auto [value, count] = sorted[i];
    std::string name = class_name(names, value).substr(0, 40);
    name.resize(std::max(width, name.size()), ' ');
    const auto bar = static_cast<std::size_t>(std::max<std::int64_t>(1, kBar * count / sorted[0].second));
    console.result(concat("  ", printable(name), "  ", grouped(count), "  ", std::string(bar, '#')));
  }
  if (sorted.size() > shown)
    console.result(concat("  and ", facts.counts.size() < kMostCounted ? "" : "at least ", sorted.size() - shown,
                          sorted.size() - shown == 1 ? " other" : " others"));
  std::int64_t without = 0;
  for (std::int64_t i = 0; i < std::ssize(names); ++i) without += !facts.counts.contains(i);
  if (without > 0) console.result(concat("  no rows have the other ", without, without == 1 ? " class" : " classes"));
}

std::string row_text(const SampleRow& row, const std::vector<NamedType>& arrays, const data::Source& source) {
  std::string text;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    text += concat(text.empty() ? "" : ", ", arrays[i].first, " ");
    if (row.is_image(i)) {
      text += concat(row.image(i).width, " x ", row.image(i).height, " x ", row.image(i).channels);
      continue;
    }
    const std::vector<double> values = row.values(i).to_doubles();
    const std::vector<std::string> names = is_counted(arrays[i].second) ? source.class_names(i) : std::vector<std::string>();
    if (!names.empty()) {
      text += concat("'", class_name(names, static_cast<std::int64_t>(values[0])), "'");
      continue;
    }
    const std::size_t shown = std::min<std::size_t>(values.size(), 8);
    for (std::size_t k = 0; k < shown; ++k) text += (k > 0 ? " " : "") + number_text(values[k]);
    if (shown < values.size()) text += " ...";
  }
  return text;
}

void show_rows(const Console& console, const data::Source& source, const DataInspectFlags& flags) {
  SampleRow row(source);
  const EpochKey key{.seed = static_cast<std::uint64_t>(flags.data.seed)};
  const std::vector<NamedType> arrays = source.arrays();
  for (std::int64_t i = 0; i < std::min(flags.rows, source.rows()); ++i) try {
      row.read(i, flags.data.augment.empty() ? nullptr : &key);
      console.result(concat("row: ", i, ", ", printable_message(source.where(i)), ": ", printable(row_text(row, arrays, source))));
    } catch (const UserError& error) { console.result(concat("row: ", i, ": ", printable_message(error.what()))); }
}

std::string tile_text(const SampleRow& row, const std::vector<NamedType>& arrays, const data::Source& source, std::int64_t at) {
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].first != "label" || row.is_image(i)) continue;
    const std::vector<std::string> names = source.class_names(i);
    const std::vector<double> values = row.values(i).to_doubles();
    if (is_counted(arrays[i].second)) return class_name(names, row.values(i).to_integers()[0]);
    if (values.size() == 1) return number_text(values[0]);
    std::string text;  // shares of classes
    for (std::size_t k = 0; k < values.size(); ++k)
      if (values[k] > 0.005) {
        text += concat(text.empty() ? "" : " ", class_name(names, static_cast<std::int64_t>(k)));
        if (values[k] < 0.995) text += concat(" ", std::lround(100 * values[k]), "%");
      }
    return text;
  }
  return concat("row ", at);
}

void write_preview(const data::Source& source, const DataInspectFlags& flags) {
  const std::optional<std::size_t> image = image_array(source);
  if (!image)
    throw UserError(concat("--preview: '", source.source(), "' has no array of images, [H,W], [C,H,W] or [H,W,C]"),
                    ExitCode::usage);
  const std::vector<NamedType> arrays = source.arrays();
  const std::int64_t tiles = std::min(kTiles, source.rows());
  const EpochKey key{.seed = static_cast<std::uint64_t>(flags.data.seed)};
  std::vector<SheetTile> sheet;
  SampleRow row(source);
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int64_t at = i * source.rows() / tiles;
    try {
      row.read(at, flags.data.augment.empty() ? nullptr : &key);
      sheet.push_back({row.as_image(*image).value_or(data::Image()), tile_text(row, arrays, source, at)});
    } catch (const UserError&) { sheet.push_back({{}, concat("row ", at, ": bad")}); }
  }
  std::vector<std::byte> bytes;
  data::encode_png(contact_sheet(sheet), bytes);
  runtime::write_file(flags.preview, bytes, runtime::Durability::buffered);
}

void inspect_data(const DataInspectFlags& flags, const Console& console) {
  if (flags.rows < 0 || flags.sample < 0)
    throw UserError(concat("--", flags.rows < 0 ? "rows" : "sample", ": wanted a whole number of at least 0"), ExitCode::usage);
  const Outputs outputs({{"--preview", flags.preview, {".png"}}});
  const data::DataSpec spec = data::parse_spec(flags.data.spec);
  outputs.protect("data", spec.path);
  const std::unique_ptr<data::Source> source = flags.data.open();
  if (!flags.preview.empty()) write_preview(*source, flags);
  const DataFacts facts = read_facts(*source, flags);
  const std::vector<NamedType> arrays = source->arrays();
  const bool all = facts.read == source->rows();
  const double bad_share = facts.read > 0 ? static_cast<double>(facts.bad.size()) / static_cast<double>(facts.read) : 0;
  console.result(concat("data: ", printable_message(concat("'", source->source(), "'")), ", format ", spec.format->definition.name,
                        ", ", grouped(source->rows()), source->rows() == 1 ? " row" : " rows"));
  console.result(all ? "read: all rows" : concat("read: ", grouped(facts.read), " rows, at equal distances"));
  json list = json::array();
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const bool images = source->images(i) != nullptr;
    const std::vector<std::string> names = source->class_names(i);
    console.result(printable(array_line(arrays[i], facts.arrays[i], images)));
    show_counts(console, arrays[i], facts.arrays[i], names);
    list.push_back(array_json(arrays[i], facts.arrays[i], images, names));
  }
  json bad = json::array();
  for (std::size_t i = 0; i < std::min(facts.bad.size(), kShownBad); ++i)
    bad.push_back({{"row", facts.bad[i].row}, {"reason", facts.bad[i].reason}});
  console.result(concat("cannot be read: ", grouped(std::ssize(facts.bad)), facts.bad.size() == 1 ? " row" : " rows", " of ",
                        grouped(facts.read), ", ", number_text(100 * bad_share), " %"));
  for (std::size_t i = 0; i < std::min(facts.bad.size(), kShownBad); ++i)
    console.result("  " + printable_message(facts.bad[i].reason));
  for (const std::string& note : source->notes()) console.result("note: " + printable_message(note));
  show_rows(console, *source, flags);
  if (!flags.preview.empty()) console.result(concat("wrote '", flags.preview, "'"));
  console.result_json({{"data", flags.data.spec},
                       {"format", spec.format->definition.name},
                       {"rows", source->rows()},
                       {"rows_read", facts.read},
                       {"arrays", list},
                       {"unreadable_rows", facts.bad.size()},
                       {"unreadable", bad},
                       {"notes", source->notes()}});
}

}  // namespace

Command add_data_inspect(ArgumentParser& data, Console& console) {
  auto flags = std::make_shared<DataInspectFlags>();
  ArgumentParser parser = data.add_subcommand(
      "inspect", "rows, arrays, ranges, counts of labels, missing values, unreadable files; samples as an image");
  flags->data.add(parser);
  parser.add_option("--rows", flags->rows, "how many of the first rows are shown");
  parser.add_option("--sample", flags->sample, "read this many rows at equal distances; 0: all");
  parser.add_option("--workers", flags->workers, "threads that read; 0: as many as there are processors, at most 8");
  parser
      .add_option("--preview", flags->preview, "an image of 48 rows at equal distances with their labels, as --augment makes them")
      .type_name("FILE.png");
  parser.set_footer(
      "Examples:\n"
      "  gcomp data inspect iris.csv,label=species\n"
      "  gcomp data inspect photos --sample 1000 --preview sheet.png --augment 'random_resized_crop(224), hflip'");
  return {parser, [flags, &console] { inspect_data(*flags, console); }};
}

}  // namespace gcomp::tools
