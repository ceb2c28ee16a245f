// Writes the body of one kernel: nested scopes of C-like text, and terms as named values in them. Each distinct term is written
// once, in the outermost scope where all it depends on is known, so that invariants leave the loops by themselves. Names are
// numbered in order: the text depends on the nest alone. CPU and CUDA text share this class; what differs lies in the prelude.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/flat_nest.h"

namespace gcomp::codegen {

/// The type a kernel computes in: "float" for f32, f16 and bf16, "long long" for i64.
std::string_view compute_type_text(DType dtype);
/// The type in memory: as above, but "gc_f16" and "gc_bf16".
std::string_view storage_type_text(DType dtype);

/// Who turns a product and a sum into one operation, which rounds once.
enum class Contraction : std::uint8_t {
  by_compiler,  ///< it may, and no text says where
  by_text,      ///< a sum or difference with a product among its operands is "gc_fma(a, b, c)": one result whoever compiles it
};

/// Lines set in by two spaces for each brace that is open.
std::string indented(const std::string& text);

class KernelWriter {
 public:
  /// `index_type` is the type of index variables.
  explicit KernelWriter(const FlatNest& nest, std::string_view index_type = "long",
                        Contraction contraction = Contraction::by_compiler);

  /// The nest whose statements stand behind locals that are not bound. The new one must have the same statement numbers.
  void use(const FlatNest& nest) { nest_ = &nest; }

  std::string fresh(std::string_view prefix) { return std::string(prefix) + std::to_string(next_++); }
  void line(const std::string& text) { scopes_.back().text += text + "\n"; }

  /// "HEADER {" ... "}"; `pragma` lines stand before it.
  void open(std::string header, std::string pragma = {});
  /// A block in which another nest may be in use: what is written in it is neither found nor placed outside.
  void open_sealed(std::string header = {}) {
    open(std::move(header));
    scopes_.back().sealed = true;
  }
  /// A loop whose iterations run as lanes: "#pragma omp simd" with the clauses.
  void open_simd(std::string header, std::string clauses = {});
  void close();

  /// Until the current scope closes, `axis` is the variable `name`.
  void bind_axis(int axis, std::string name);
  /// Until the current scope closes, a statement's value is the variable `name`.
  void bind_local(int statement, std::string name) { bind(statement, {std::move(name), {}, depth()}); }
  /// Until the current scope closes, a statement's value stands at `position` of an array.
  void bind_array(int statement, std::string array, ir::Index position) {
    bind(statement, {std::move(array), std::move(position), depth()});
  }

  /// A variable name or literal that holds the term, written where its parts are known.
  std::string value(const ir::TermPtr& term) { return place(term).text; }
  /// The value of a statement, in its dtype.
  std::string statement(int number) {
    return place(ir::local(nest_->statements[static_cast<std::size_t>(number)].dtype, number)).text;
  }
  /// The same for whoever rounds it to that dtype: the operand of the statement's own rounding to 16 bits, where that is all it
  /// does.
  std::string unrounded(int number);
  /// "total + value", or where the value is a product "gc_fma(a, b, total)".
  std::string added(const std::string& total, const ir::TermPtr& term);
  std::string index(const ir::Index& index) { return place(index).text; }
  /// A test whether all conditions hold.
  std::string conditions(const std::vector<ir::Condition>& conditions);
  /// An assignment of an element of a result.
  std::string store(const Store& store, const std::string& value);

  /// Whether an index that may be out of range was written; then the variable `bad` is set where one is.
  bool may_fault() const { return may_fault_; }
  std::string finish();

 private:
  struct Placed {
    std::string text;
    int depth = 0;
  };
  struct Binding {
    std::string name;
    std::optional<ir::Index> position;
    int depth = 0;
  };
  struct Scope {
    std::string header, pragma, clauses, text;
    bool simd = false, branch = false, sealed = false, faults = false;
    std::unordered_map<ir::TermPtr, std::string, ir::TermHash, ir::TermEqual> terms;
    std::unordered_map<std::string, std::string> expressions;  ///< variables by what defines them: equal text is an equal value
    std::vector<std::pair<int, std::optional<Binding>>> locals_before;
    std::vector<std::pair<int, std::optional<Placed>>> axes_before;
  };

  int depth() const { return static_cast<int>(scopes_.size()) - 1; }
  void bind(int statement, Binding binding);
  /// The deepest scope that is sealed: values do not leave it.
  int floor() const;
  /// The deepest scope that is sealed or a branch: reads do not leave it.
  int read_floor() const;

  Placed place(const ir::TermPtr& term);
  Placed place(const ir::Index& index);
  Placed place(const ir::IndexAtom& atom);
  Placed place_call(const ir::Term& term);
  /// The product that the term is, in a dtype that is computed in as it is; null for others.
  ir::TermPtr product_of(ir::TermPtr term) const;
  /// A sum or difference that rounds once; nothing where no operand is a product.
  std::optional<Placed> place_contracted(const ir::Term& term);
  Placed place_guard(const ir::TermPtr& term);
  Placed place_local(const ir::TermPtr& term);
  Placed place_loaded(const ir::IndexAtom& atom);
  /// A variable for the expression in the scope at `depth`; the one already there, if any.
  Placed define(std::string_view type, const std::string& expression, int depth);
  Scope& scope_at(int depth) { return scopes_[static_cast<std::size_t>(depth)]; }

  int depth_of(const ir::TermPtr& term);
  int depth_of(const ir::Index& index);

  const FlatNest* nest_;
  std::string index_type_;
  Contraction contraction_;
  std::vector<Scope> scopes_;
  std::unordered_map<int, Placed> axes_;
  std::unordered_map<int, Binding> locals_;
  std::unordered_map<const ir::Term*, int> depths_;  // valid until a binding changes
  int next_ = 0;
  bool may_fault_ = false;
};

}  // namespace gcomp::codegen
