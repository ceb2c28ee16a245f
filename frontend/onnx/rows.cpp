#include "frontend/onnx/rows.h"

#include <map>
#include <utility>

namespace gcomp::frontend {
namespace {

using Key = std::pair<std::string_view, std::string_view>;

const std::multimap<Key, const Row*>& index() {
  static const auto* const kIndex = [] {
    auto* map = new std::multimap<Key, const Row*>();
    for (auto table : {elementwise_rows(), activation_rows(), shape_rows(), slicing_rows(), constant_rows(), reduce_rows(),
                       contract_rows(), pool_rows(), norm_rows(), recurrent_rows(), resize_rows(), attention_rows(), random_rows(),
                       index_rows(), loss_rows(), sequence_rows(), einsum_rows(), sampling_rows(), signal_rows()})
      for (const Row& row : table) map->emplace(Key{row.domain, row.op}, &row);
    return map;
  }();
  return *kIndex;
}

}  // namespace

const Row* find_row(std::string_view domain, std::string_view op, std::int64_t opset) {
  const Row* best = nullptr;
  const auto [begin, end] = index().equal_range({domain, op});
  for (auto it = begin; it != end; ++it)
    if (it->second->since <= opset && (!best || it->second->since > best->since)) best = it->second;
  return best;
}

bool knows_operator(std::string_view domain, std::string_view op) { return index().count({domain, op}) > 0; }

}  // namespace gcomp::frontend
