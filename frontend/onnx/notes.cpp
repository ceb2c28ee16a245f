#include "frontend/onnx/notes.h"

#include "ir/base/error.h"
#include "ir/base/nearest.h"

namespace gcomp::frontend {

std::string some_of(std::span<const std::string> names) {
  constexpr std::size_t kRoom = 60;
  std::size_t shown = 0, width = 0;
  while (shown < names.size() && (shown == 0 || width + names[shown].size() + 4 <= kRoom)) width += names[shown++].size() + 4;
  if (shown == names.size()) return listing(names);
  std::string text;
  for (const std::string& name : names.first(shown)) text += concat(text.empty() ? "'" : ", '", name, "'");
  return concat(text, " and ", names.size() - shown, " more");
}

}  // namespace gcomp::frontend
