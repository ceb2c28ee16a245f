#include "codegen/narrow_integers.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "ir/ops/table.h"

namespace gcomp::codegen {

using namespace gcomp::ir;

namespace {

/// As wide as the floats whose comparisons choose: a compiler that counts lanes by the narrowest type has four registers of floats
/// for one of bytes, more than there are, and packs each comparison.
constexpr DType kChosen = DType::i32;

bool is_cast_of(const TermPtr& term, int statement) {
  return term->kind == Term::Kind::call && term->op == &ops::kCast && term->arguments[0]->kind == Term::Kind::local &&
         term->arguments[0]->slot == statement;
}

/// The dtype to which every reader of the statement casts it; none where one reads it as it is, or nobody does.
std::optional<DType> read_as(const FlatNest& nest, int statement) {
  std::optional<DType> found;
  bool other = std::ranges::any_of(nest.stores, [&](const Store& store) { return store.statement == statement; });
  const auto read = [&](const TermPtr& term) { return term->kind == Term::Kind::local && term->slot == statement; };
  const auto take = [&](DType dtype) { other = other || std::exchange(found, dtype).value_or(dtype) != dtype; };
  for (const Statement& s : nest.statements) {
    other = other || read(s.value);
    for_each_term(s.value, [&](const TermPtr& t) {
      if (is_cast_of(t, statement)) return take(t->dtype);
      other = other || std::ranges::any_of(t->arguments, read);
    });
  }
  // What an index loads is no argument.
  for_each_index(nest, [&](const Index& index) { other = other || index.has_loaded(); });
  return other ? std::nullopt : found;
}

/// The choice among constants in another integer dtype that holds them all; else null.
TermPtr narrowed(const TermPtr& term, DType dtype) {
  if (term->kind == Term::Kind::literal) {
    const double most = dtype == DType::u8 ? std::numeric_limits<std::uint8_t>::max() : std::numeric_limits<std::int32_t>::max();
    return term->number >= 0 && term->number <= most ? literal(dtype, term->number) : nullptr;
  }
  if (term->kind != Term::Kind::call || term->op != &ops::kSelect) return nullptr;
  const TermPtr then = narrowed(term->arguments[1], dtype), otherwise = narrowed(term->arguments[2], dtype);
  return then && otherwise ? call(dtype, ops::kSelect, {term->arguments[0], then, otherwise}) : nullptr;
}

}  // namespace

void narrow_integers(FlatNest& nest) {
  for (std::size_t number = 0; number < nest.statements.size(); ++number) {
    Statement& s = nest.statements[number];
    if (s.kind != Statement::Kind::map || s.dtype != DType::i64) continue;
    const int slot = static_cast<int>(number);
    const std::optional<DType> dtype = read_as(nest, slot);
    if (dtype != DType::u8 && dtype != DType::i32) continue;
    const TermPtr value = narrowed(s.value, *dtype) ? narrowed(s.value, kChosen) : nullptr;
    if (!value) continue;
    s.value = value;
    s.dtype = kChosen;
    const auto uncast = [&](const TermPtr& t) -> TermPtr {
      if (!is_cast_of(t, slot)) return nullptr;
      return *dtype == kChosen ? local(kChosen, slot) : call(*dtype, ops::kCast, {local(kChosen, slot)});
    };
    for (Statement& reader : nest.statements) reader.value = edited(reader.value, uncast);
  }
}

}  // namespace gcomp::codegen
