// Where results that are matrices are wanted: their readers are followed down through transposes and reshapes to the last order
// that one after the other gives them, and through a concat of nothing but results of one node.
#pragma once

#include <functional>
#include <map>
#include <unordered_set>
#include <vector>

#include "ir/matrices.h"

namespace gcomp::passes {

/// Matrices of one node that lie in one value.
struct Destination {
  ir::Value* value = nullptr;
  std::map<std::size_t, ir::StridedView> views;  ///< by the matrix' number; empty for one that stays dense where it is
};

class DestinationFinder {
 public:
  /// Whether a node can write a matrix as this view.
  using Takes = std::function<bool(const ir::Node&, const ir::StridedView&)>;

  explicit DestinationFinder(const ir::Graph& graph);

  /// One for each matrix that the node makes.
  std::vector<Destination> find(const ir::Node& node, const Takes& takes) const;

  /// Who reads a value, itself or reshaped.
  struct Readers {
    std::vector<std::pair<ir::Node*, const ir::Value*>> movers;  ///< transposes and concats, each with what it reads
    std::vector<ir::Node*> opaque;                               ///< read it as it lies, in memory
    std::vector<ir::Node*> viewers;  ///< composites that read it as a matrix, in whatever order its rows lie
    bool is_output = false;
    bool summed = false;  ///< some reader is a sum over axes

    bool fixed() const { return is_output || !opaque.empty(); }
  };
  Readers readers_of(const ir::Value* value) const;

 private:
  struct Journey;
  void find_readers(const ir::Value* value, Readers& readers) const;
  void advance(const ir::Node& node, const Takes& takes, Journey& journey) const;
  void go_on_together(const ir::Node& node, const Takes& takes, std::vector<Journey>& journeys) const;

  const ir::Uses uses_;
  std::unordered_set<const ir::Value*> outputs_;
};

}  // namespace gcomp::passes
