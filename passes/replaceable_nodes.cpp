#include "passes/replaceable_nodes.h"

#include <algorithm>

namespace gcomp::passes {

using namespace ir;

ReplaceableNodes::ReplaceableNodes(Graph& graph)
    : graph_(graph), readers_(uses_of(graph)), outputs_(graph.outputs().begin(), graph.outputs().end()) {
  std::size_t updates = 0;
  for (const auto& node : graph.nodes()) {
    places_.emplace(node.get(), Place{slots_.size(), 0});
    slots_.push_back({node.get()});
    updates_.push_back(updates);
    updates += node->op->kind == Kind::update;
  }
}

bool ReplaceableNodes::has_update_between(const Place& first, const Place& last) const {
  return updates_[first.first] < updates_[last.first];
}

std::vector<Node*> ReplaceableNodes::readers(const Value* value) {
  const auto found = readers_.find(value);
  if (found == readers_.end()) return {};
  std::vector<Node*>& readers = found->second;
  std::erase_if(readers, [&](const Node* node) { return !places_.count(node) || !std::ranges::count(node->operands, value); });
  std::ranges::sort(readers, {}, [&](const Node* node) { return place(node); });
  readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
  return readers;
}

void ReplaceableNodes::note_operands(Node* node) {
  for (const Value* operand : node->operands)
    if (operand) readers_[operand].push_back(node);
}

void ReplaceableNodes::insert_before(const Node* node, const std::vector<Node*>& made) {
  const Place place = places_.at(node);
  std::vector<Node*>& slot = slots_[place.first];
  slot.insert(slot.begin() + static_cast<std::ptrdiff_t>(place.second), made.begin(), made.end());
  for (std::size_t i = place.second; i < slot.size(); ++i) places_[slot[i]] = {place.first, i};
  for (Node* each : made) note_operands(each);
}

void ReplaceableNodes::remove(const Node* node) {
  const Place place = places_.at(node);
  std::vector<Node*>& slot = slots_[place.first];
  slot.erase(slot.begin() + static_cast<std::ptrdiff_t>(place.second));
  for (std::size_t i = place.second; i < slot.size(); ++i) places_[slot[i]].second = i;
  places_.erase(node);
}

void ReplaceableNodes::replace_uses(const std::unordered_map<Value*, Value*>& map) {
  for (const auto& [from, to] : map) {
    for (Node* reader : readers(from)) {
      std::ranges::replace(reader->operands, from, to);
      readers_[to].push_back(reader);
    }
    if (outputs_.erase(from) > 0) outputs_.insert(to);
    replaced_.emplace(from, to);
  }
}

void ReplaceableNodes::finish() {
  std::unordered_map<const Node*, std::unique_ptr<Node>> nodes;
  for (std::unique_ptr<Node>& node : graph_.take_nodes()) nodes.emplace(node.get(), nullptr).first->second = std::move(node);
  for (const std::vector<Node*>& slot : slots_)
    for (const Node* node : slot) graph_.append(std::move(nodes.at(node)));
  for (auto& [key, node] : nodes)
    if (node) removed_.push_back(std::move(node));
  graph_.replace_uses(replaced_);
}

}  // namespace gcomp::passes
