#include "gcomp/driver/fit/metrics_table.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include "gcomp/driver/not_a_number.h"
#include "ir/base/error.h"
#include "runtime/files/atomic_file.h"

namespace gcomp::driver {
namespace {

/// As RFC 4180 has it.
std::string cell(std::string_view text) {
  if (text.find_first_of(",\"\n\r") == text.npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

/// The cells of a line that cell() wrote.
std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') cells.back() += line[i++];
    else if (line[i] == '"') quoted = !quoted;
    else if (line[i] == ',' && !quoted) cells.emplace_back();
    else cells.back() += line[i];
  }
  return cells;
}

template <class Number>
std::string digits_of(Number value) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

std::string csv_number(double value) { return digits_of(without_sign_of_nan(value)); }

/// Columns and their cells: one for a number, one for each of a list.
std::vector<std::pair<std::string, std::string>> csv_cells(std::span<const runtime::Metric> metrics) {
  std::vector<std::pair<std::string, std::string>> cells;
  for (const auto& [name, value] : metrics) {
    if (const auto* whole = std::get_if<std::int64_t>(&value)) cells.emplace_back(name, digits_of(*whole));
    else if (const auto* number = std::get_if<double>(&value)) cells.emplace_back(name, csv_number(*number));
    else if (const auto* list = std::get_if<std::span<const double>>(&value))
      for (std::size_t i = 0; i < list->size(); ++i) cells.emplace_back(concat(name, "/", i), csv_number((*list)[i]));
  }
  return cells;
}

std::string line_of(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& one : cells) line += concat(&one == cells.data() ? "" : ",", cell(one));
  return line + '\n';
}

std::string contents_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

MetricsTable::MetricsTable(const std::filesystem::path& path, std::int64_t steps) : path_(path) {
  const std::string before = contents_of(path);
  std::string kept;
  for (std::size_t at = 0; at < before.size();) {
    const std::size_t end = before.find('\n', at);
    if (end == before.npos) break;  // the last line of a process that was killed
    const std::string_view line = std::string_view(before).substr(at, end - at);
    at = end + 1;
    if (columns_.empty()) columns_ = cells_of(line);
    else if (std::int64_t step = 0; std::from_chars(line.data(), line.data() + line.size(), step).ec != std::errc() || step > steps)
      continue;
    kept += concat(line, "\n");
  }
  if (columns_.empty()) kept = line_of(columns_ = {"step"});
  runtime::write_file(path_, std::as_bytes(std::span(kept)), runtime::Durability::buffered);
  open();
}

void MetricsTable::open() {
  descriptor_ = runtime::Descriptor(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!descriptor_) throw UserError(concat("cannot write '", path_.string(), "': ", std::generic_category().message(errno)));
}

/// The cells of earlier rows are empty there.
void MetricsTable::add_columns(const Cells& cells) {
  const std::size_t before = columns_.size();
  for (const auto& [name, number] : cells)
    if (std::ranges::count(columns_, name) == 0) columns_.push_back(name);
  if (columns_.size() == before) return;
  const std::string old = contents_of(path_);
  std::string text = line_of(columns_);
  for (std::size_t at = old.find('\n') + 1; at < old.size();) {
    const std::size_t end = std::min(old.find('\n', at), old.size());
    text += old.substr(at, end - at) + std::string(columns_.size() - before, ',') + '\n';
    at = end + 1;
  }
  runtime::write_file(path_, std::as_bytes(std::span(text)), runtime::Durability::buffered);
  open();
}

void MetricsTable::write(std::span<const runtime::Metric> metrics) {
  const Cells given = csv_cells(metrics);
  add_columns(given);
  std::vector<std::string> cells(columns_.size());
  for (const auto& [name, number] : given)
    cells[static_cast<std::size_t>(std::ranges::find(columns_, name) - columns_.begin())] = number;
  append(line_of(cells));
}

void MetricsTable::append(const std::string& text) {
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t written = ::write(descriptor_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw UserError(concat("cannot write '", path_.string(), "': ", std::generic_category().message(errno)));
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace gcomp::driver
