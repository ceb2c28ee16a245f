#include "tools/gcomp/metric_text.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "gcomp/driver/not_a_number.h"
#include "ir/base/error.h"

namespace gcomp::tools {
namespace {

std::string number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, driver::without_sign_of_nan(value));
  return text;
}

/// Rows of right-aligned numbers.
std::string matrix_text(const Tensor& matrix) {
  const std::int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  std::size_t width = 0;
  for (std::int64_t i = 0; i < matrix.elements(); ++i) width = std::max(width, number("%.0f", matrix.at(i)).size());
  std::string text;
  for (std::int64_t i = 0; i < rows; ++i) {
    text += "\n ";
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::string one = number("%.0f", matrix.at(i * columns + j));
      text += std::string(width - one.size() + 1, ' ') + one;
    }
  }
  return text;
}

}  // namespace

std::vector<std::string> metric_lines(const Evaluation& evaluation, std::string_view prefix) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : evaluation.metrics) {
    if (!value.shape().empty())
      lines.push_back(concat(prefix, name, ", a row for each right class, a column for each that was taken:", matrix_text(value)));
    else if (name.starts_with("accuracy")) lines.push_back(concat(prefix, name, " ", number("%.1f %%", 100 * value.at(0))));
    else lines.push_back(concat(prefix, name, " ", number("%.6g", value.at(0))));
  }
  return lines;
}

void add_metrics(nlohmann::json& object, const Evaluation& evaluation) {
  for (const auto& [name, value] : evaluation.metrics) {
    if (value.shape().empty()) {
      object[name] = value.at(0);
      continue;
    }
    nlohmann::json rows = nlohmann::json::array();
    const std::int64_t columns = value.shape()[1];
    for (std::int64_t i = 0; i < value.shape()[0]; ++i) {
      nlohmann::json row = nlohmann::json::array();
      for (std::int64_t j = 0; j < columns; ++j) row.push_back(value.at(i * columns + j));
      rows.push_back(std::move(row));
    }
    object[name] = std::move(rows);
  }
}

}  // namespace gcomp::tools
