// Several functions as one overload set, for std::visit:
//
//   std::visit(Overloaded{[](const Circle& c) { ... }, [](const Square& s) { ... }}, shape)
#pragma once

namespace gcomp {

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace gcomp
