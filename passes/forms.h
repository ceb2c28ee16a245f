// What is true of a graph at a place of the pass table: facts, of which each pass needs some, gives some and takes some away.
// A fact that can be seen on a graph has a check, which the runner makes after each pass that gives it or changes a graph that
// has it; the others are known from what ran.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace gcomp::passes {

struct PassContext;

enum class Form : std::uint8_t {
  forward,              ///< nothing is differentiated
  constants_folded,     ///< numbers stand where exporters leave formulas of them
  attention_matched,    ///< what is attention is one op, so that autocast and differentiate meet it as one
  precision_decided,    ///< each op computes in its dtype; differentiation goes back through the casts
  loss_attached,        ///< the loss is a floating-point scalar and an output
  loss_scaled,          ///< what is to be differentiated is made of the loss
  differentiated,       ///< each trained parameter has a gradient of its type
  gradients_total,      ///< of the whole batch, where it is cut into shards
  gradients_final,      ///< divided by the loss scale
  gradients_clipped,    ///< as far as that is asked for
  updates_attached,     ///< each trained parameter is updated
  parameters_averaged,  ///< as far as that is asked for
  updates_guarded,      ///< with loss scaling, or where it is asked for: only where loss and gradients are finite
  complete,             ///< outputs are those of the program, and all that they need is there
  primitive,            ///< no composites but those that are legal for the target
  unfused,              ///< no kernels but products that sum an operand
  folded,               ///< algebra is done on the primitive ops: slices and transposes stand next to what they belong to
  simplified,           ///< folded, and nothing has changed since
  layouts_chosen,       ///< convolutions are channels last
  products_matched,     ///< convolutions of single pixels are products, where the target computes those faster
  products_legal,       ///< no 16-bit products where the target has none
  products_aligned,
  views_resolved,        ///< attention and products read and write where their matrices lie
  bias_gradients_fused,  ///< with the products that read the same rows
  reductions_split,
  fused,  ///< kernels, contractions, legal composites, constants, reshapes of values in memory, updates, collectives
  epilogues_fused,
  ordered,  ///< nodes stand as they will run
  planned,  ///< every value has its place
};
inline constexpr std::size_t kForms = static_cast<std::size_t>(Form::planned) + 1;

/// A set of forms.
class Forms {
 public:
  constexpr Forms() = default;
  constexpr Forms(Form form) : bits_(std::uint32_t{1} << static_cast<unsigned>(form)) {}
  constexpr Forms(std::initializer_list<Form> forms) {
    for (Form form : forms) bits_ |= Forms(form).bits_;
  }
  constexpr bool has(Forms all) const { return (bits_ & all.bits_) == all.bits_; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr Forms operator|(Forms other) const { return of(bits_ | other.bits_); }
  constexpr Forms operator&(Forms other) const { return of(bits_ & other.bits_); }
  constexpr Forms without(Forms other) const { return of(bits_ & ~other.bits_); }
  constexpr bool operator==(const Forms&) const = default;

 private:
  static constexpr Forms of(std::uint32_t bits) {
    Forms forms;
    forms.bits_ = bits;
    return forms;
  }
  std::uint32_t bits_ = 0;
};
static_assert(kForms <= 32);

/// What passes do only where they find it, and what would be wrong and not only slow elsewhere. gcomp-opt lets passes run in any
/// order that keeps these; the others are the pipeline's own.
inline constexpr Forms kLegality{
    Form::forward,          Form::loss_attached, Form::loss_scaled, Form::differentiated, Form::gradients_final,
    Form::updates_attached, Form::primitive,     Form::unfused,     Form::products_legal, Form::fused};

/// "is primitive": ends a sentence that begins "a graph that".
std::string_view describe(Form form);
/// The first form of the set, in the order of the enum; not for an empty one.
Form first_of(Forms forms);
/// The first place where the graph lacks a form, in one line that names the node; "" where there is none, or none can be seen.
/// O(nodes); for Form::planned as long as verify_plan().
std::string find_violation(Form form, const PassContext& context);

}  // namespace gcomp::passes
