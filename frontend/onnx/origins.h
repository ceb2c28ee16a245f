// Which tensor of the module each use of an initializer reads, as far as the file tells. Exporters merge initializers of equal
// value, so the uses of one may read several parameters, or a parameter here and a constant there.
#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "frontend/onnx/signature.h"
#include "frontend/onnx/uses.h"
#include "ir/base/tensor.h"

namespace gcomp::frontend {

enum class OriginKind {
  untold,     ///< the file does not say
  parameter,  ///< a parameter of the module, or a value folded from parameters
  buffer,
  constant,  ///< a tensor made in the module's code, or a value folded from such and from buffers
  literal,   ///< a number in the module's code
};

struct Origin {
  OriginKind kind = OriginKind::untold;
  std::string target;                ///< its name in the module; "" where it is none, or several, or unknown
  std::vector<std::string> sources;  ///< folded: the parameters, or else the buffers and constants, that it was computed from
  bool folded = false;
  std::vector<std::string> beside = {};  ///< of a value folded from parameters: the buffers and constants that went into it too
  /// Name in the trace, where the file does not tell which of `sources` it was folded from.
  std::string value = {};

  bool operator==(const Origin&) const = default;
};

class Origins {
 public:
  using Uses = std::unordered_map<std::string, std::vector<Use>>;
  Origins(const ::onnx::GraphProto& graph, const Signature& signature, const Uses& uses);

  /// What the initializer was when the module was traced.
  Origin of(const std::string& initializer) const;
  /// What this use reads: that, or another of equal value that the exporter merged with it.
  Origin of(const std::string& initializer, const Tensor& values, const Use& use) const;
  /// Whether the traced call behind a use takes this parameter of the module.
  bool call_takes(const Use& use, const std::string& target) const;
  /// The value of the trace that this use reads, if its call takes such a value and the file does not compute it: the name of the
  /// initializer, or that of a value which the exporter folded and merged with it. Else "".
  std::string traced_value(const std::string& initializer, const Use& use) const;
  /// Other names of a tied parameter: name -> the name that the file goes by.
  const std::map<std::string, std::string>& tied_names() const { return tied_; }
  /// The initializer's name, then those in the module of what it is: `target`, and the others that a tied parameter has.
  std::vector<std::string> all_names(const std::string& initializer, const std::string& target) const;
  /// Whether some initializer goes by the name of `target`, or was folded from it alone.
  bool is_carried(const std::string& target) const { return carried_.contains(target); }

 private:
  std::vector<std::string> targets_of_call(const Use& use) const;
  bool reads_literal(const Use& use, const Tensor& values) const;
  std::set<std::string> operands_of_call(int node) const;
  std::set<std::string> folded_arguments(const Use& use) const;
  Origin merged_value(const std::string& initializer, const Origin& own, const Use& use) const;
  bool is_unread(const std::string& target) const;
  std::string module_behind(int node) const;
  Origin behind_own_node(const Origin& own, const Use& use) const;
  std::string target_of_norm(const std::vector<std::string>& targets, const Use& use) const;
  void find_read();
  void find_homes(const Uses& uses);
  void find_tied_names(const Uses& uses);

  const ::onnx::GraphProto& graph_;
  const Signature& signature_;
  std::set<std::string> carried_;
  std::unordered_set<std::string> computed_;     ///< inputs of the graph and results of its nodes
  std::unordered_map<std::string, int> makers_;  ///< value -> the node that computes it
  std::unordered_map<std::string, std::vector<int>> readers_;
  std::map<std::string, std::vector<int>> nodes_of_call_;  ///< by the call's result
  std::set<std::string> read_;                             ///< targets that a call takes, or a value was folded from
  std::map<std::string, std::string> homes_;               ///< folded initializer -> the module that reads it
  std::map<std::string, std::string> tied_;
};

}  // namespace gcomp::frontend
