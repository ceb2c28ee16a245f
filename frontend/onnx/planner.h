// The decision what trains, one initializer after the other: parameter_groups.cpp tells the tensors apart that an initializer
// serves, parameters.cpp gives each its state.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "frontend/onnx/moved_buffers.h"
#include "frontend/onnx/origins.h"
#include "frontend/onnx/parameters.h"
#include "frontend/onnx/signature.h"
#include "frontend/onnx/uses.h"
#include "frontend/onnx/verdict.h"

namespace gcomp::frontend {

/// The uses of one initializer that read the same tensor of the module.
struct Group {
  Origin origin;
  std::vector<Use> uses;
  Verdict verdict = {};
};

inline bool is_statistic(const Use& use) { return use.role == UseRole::running_statistic; }

class Planner {
 public:
  Planner(const Source& source, const Initializers& initializers, const std::vector<FixedWeight>& fixed,
          const ImportOptions& options);
  ParameterPlan run();

 private:
  struct Entry {
    std::string state, initializer, target;  ///< `target`: its name in the module
    TensorType type;
    std::vector<Use> uses;
    Verdict verdict;
  };

  void plan(const std::string& name, const Tensor& values);
  /// The group whose state has the initializer's name: that of the tensor which it was, if that has a state, else the first that
  /// has.
  std::vector<Group>::iterator keeper_of(const std::string& name, std::vector<Group>& groups) const;
  /// No use trains: one constant, whatever the exporter merged into it.
  void add_constant(const std::string& name, const Tensor& values, const std::vector<Group>& groups);
  /// A state of its own, which export adds as an initializer, or the file's value for uses that do not train.
  void add_part(const std::string& name, const Tensor& values, const Group& group, std::vector<std::string>& parts);
  /// That of the value in the trace, where the file tells it.
  std::string name_of_part(const std::string& name, const Group& group) const;
  void note_parts(const std::string& name, const Group& keeper, const std::vector<std::string>& parts);
  /// What is a parameter's value by detach() reads the parameter and gives it no gradient.
  void cut_folded_detached();
  /// Buffers that should move and do not.
  void note_lost_buffers();
  /// Parameters and statistics that are initializers of their own again.
  void note_restored();
  /// A value that the module computes from its parameters trains in their place, which is not the same.
  void note_computed(const std::string& state, const std::string& name, const Group& group);
  /// Equal rows that were one row of the parameter train as one.
  void repeat_rows(const std::string& name, const Tensor& values, const Origin& origin);
  std::vector<Group> groups_of(const std::string& name, const Tensor& values);
  /// One group of all that may train. Each norm moves its own statistics.
  static std::vector<Group> joined(std::vector<Group> groups);
  /// Whether --thaw and --untie ask for a parameter for each use.
  bool is_thawed_apart(const std::string& name, const Group& group) const;
  /// One group for each use where --untie asks for it, and where the file is silent of norms that share statistics, or freshly
  /// made values.
  std::vector<Group> split(const std::string& name, const Tensor& values, std::vector<Group> groups) const;
  TensorType file_type(const std::string& name, const Tensor& values) const;
  /// Reports it, and plans a state where it has one; whether it has.
  bool add(Entry entry);
  /// Shapes and slices of a parameter are no further uses, and what one calculation of parameters reads twice counts once: a weight
  /// divided by its own norm.
  bool shared(const std::vector<Use>& uses) const;
  /// Arithmetic on parameters and constants alone.
  bool is_calculation(const Use& use) const;
  /// What the file calls a parameter and no optimizer could move.
  void note_unbelievable(const std::string& name);
  void restore_biases();
  /// A batch norm of which one statistic is frozen normalises by them all, as in inference, so none of them moves.
  void freeze_norms();
  std::string unique(std::string name);
  /// Of a glob that matches `names` nowhere but weights that cannot train.
  void refuse_fixed(const char* flag, const std::vector<std::string>& globs, const std::vector<std::string>& names) const;
  /// A glob that matches nothing is a mistake of its author's.
  void check_globs() const;

  const ::onnx::GraphProto& graph_;
  const Initializers& initializers_;
  const std::vector<FixedWeight>& fixed_;
  const ImportOptions& options_;
  const std::map<std::string, std::string>& merged_;  ///< Source::merged
  std::unordered_map<std::string, std::vector<Use>> uses_;
  const Signature signature_;
  const Origins origins_;
  const Naming naming_;
  const MovedBuffers moved_;
  const std::vector<bool> depends_on_input_;                 ///< by node
  std::set<std::string> taken_;                              ///< names that no new state may have
  std::set<std::string> read_;                               ///< the module's parameters and buffers that some use reads
  std::map<int, std::vector<std::size_t>> norm_statistics_;  ///< batch norm's node -> its statistics in plan_.parameters
  ParameterPlan plan_;
};

}  // namespace gcomp::frontend
