#include "passes/fusion/nest_domains.h"

#include <algorithm>

namespace gcomp::passes {

using namespace ir;

std::uint64_t all_axes(const LoopNest& nest) {
  return nest.extents.empty() ? 0 : (~std::uint64_t{0} >> (64 - nest.extents.size()));
}
std::uint64_t bits_of(const std::vector<int>& axes) {
  std::uint64_t bits = 0;
  for (int a : axes) bits |= bit(a);
  return bits;
}
std::vector<int> axes_in(std::uint64_t bits) {
  std::vector<int> axes;
  for (int a = 0; a < 64; ++a)
    if (bits >> a & 1) axes.push_back(a);
  return axes;
}
std::int64_t points(const LoopNest& nest, std::uint64_t axes) {
  std::int64_t count = 1;
  for (int a : axes_in(axes)) count *= nest.extents[static_cast<std::size_t>(a)];
  return count;
}

std::optional<std::vector<int>> mixed_radix(const Index& index, std::int64_t extent) {
  std::vector<Index::Part> parts = index.parts();
  if (index.constant() != 0) return std::nullopt;
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.coefficient < b.coefficient; });
  std::int64_t radix = 1;
  std::vector<int> axes;
  for (const Index::Part& part : parts) {
    if (part.atom.kind != IndexAtom::Kind::axis || part.coefficient != radix) return std::nullopt;
    radix *= part.atom.extent;
    axes.push_back(part.atom.axis);
  }
  std::reverse(axes.begin(), axes.end());
  return radix == extent ? std::optional(axes) : std::nullopt;
}

std::optional<AxisMap> connect(const LoopNest& from, const std::vector<Index>& stored, const std::vector<Index>& read,
                               const Shape& shape, std::uint64_t& used) {
  AxisMap map(from.extents.size(), kUnmapped);
  used = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    const auto axis = stored[d].as_axis();
    const auto axes = mixed_radix(read[d], shape[d]);
    if (!axis || !axes || !(map[static_cast<std::size_t>(*axis)] == kUnmapped)) return std::nullopt;
    for (int a : *axes) {
      if (used & bit(a)) return std::nullopt;
      used |= bit(a);
    }
    map[static_cast<std::size_t>(*axis)] = read[d];
  }
  return map;
}

std::optional<AxisMap> rename(const LoopNest& from, const std::vector<Index>& a, const LoopNest& to, const std::vector<Index>& b) {
  AxisMap map(from.extents.size(), kUnmapped);
  std::uint64_t used = 0;
  for (std::size_t d = 0; d < a.size(); ++d) {
    for (const auto& part : a[d].parts()) {
      if (part.atom.kind != IndexAtom::Kind::axis) return std::nullopt;
      int match = -1;
      for (const auto& other : b[d].parts())
        if (other.atom.kind == IndexAtom::Kind::axis && other.coefficient == part.coefficient &&
            other.atom.extent == part.atom.extent && !(used & bit(other.atom.axis)))
          match = other.atom.axis;
      if (match < 0) return std::nullopt;
      used |= bit(match);
      map[static_cast<std::size_t>(part.atom.axis)] = to.axis(match);
    }
  }
  for (std::size_t d = 0; d < a.size(); ++d) {
    bool complete = true;
    const Index renamed = a[d].substitute(
        [&](int x, std::int64_t) {
          complete = complete && !(map[static_cast<std::size_t>(x)] == kUnmapped);
          return map[static_cast<std::size_t>(x)];
        },
        [](const TermPtr& t) { return t; });
    if (!complete || !(renamed == b[d])) return std::nullopt;
  }
  return map;
}

std::uint64_t image(const AxisMap& map, std::uint64_t axes) {
  std::uint64_t bits = 0;
  for (int a : axes_in(axes))
    for (const auto& part : map[static_cast<std::size_t>(a)].parts())
      if (part.atom.kind == IndexAtom::Kind::axis) bits |= bit(part.atom.axis);
  return bits;
}

bool has_row_form(const LoopNest& nest, std::uint64_t reduced) {
  const std::uint64_t outer = all_axes(nest) & ~reduced;
  for (const Statement& s : nest.statements) {
    const std::uint64_t axes = bits_of(s.axes);
    if (s.kind == Statement::Kind::reduce && (bits_of(s.over) != reduced || axes != outer)) return false;
    if (s.kind == Statement::Kind::map && axes != outer && axes != (outer | reduced)) return false;
    if (s.kind == Statement::Kind::scan) return false;
  }
  return true;
}

namespace {

/// Statements that another one reads.
std::vector<char> read_statements(const LoopNest& nest) {
  std::vector<char> read(nest.statements.size());
  for (const Statement& s : nest.statements)
    for_each_term(s.value, [&](const TermPtr& t) {
      if (t->kind == Term::Kind::local) read[static_cast<std::size_t>(t->slot)] = 1;
    });
  return read;
}

bool is_plain_sum(const Statement& s) {
  return s.combine->reduction.of == Reduction::Of::sum && s.dtype == s.value->dtype && compute_type(s.dtype) == s.dtype &&
         is_float(s.dtype);
}

}  // namespace

bool has_strip_form(const LoopNest& nest, std::uint64_t strip, std::uint64_t columns) {
  const std::uint64_t all = all_axes(nest);
  const std::vector<char> read = read_statements(nest);
  bool reads_rows = false, sums_columns = false;
  for (std::size_t i = 0; i < nest.statements.size(); ++i) {
    const Statement& s = nest.statements[i];
    const std::uint64_t axes = bits_of(s.axes), over = bits_of(s.over);
    if (s.kind == Statement::Kind::scan) return false;
    if (s.kind == Statement::Kind::map) {
      if (axes != all && axes != (all & ~columns)) return false;
    } else if (over == strip) {
      if (axes != (all & ~strip) || read[i] || !is_plain_sum(s)) return false;
      sums_columns = true;
    } else {
      if (over != columns || axes != (all & ~columns)) return false;
      reads_rows = reads_rows || read[i];
    }
  }
  return reads_rows && sums_columns;
}

}  // namespace gcomp::passes
