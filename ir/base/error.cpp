#include "ir/base/error.h"

#include <locale>
#include <sstream>

namespace gcomp {

std::string join_message(MessageParts parts) {
  std::ostringstream out;
  out.imbue(std::locale::classic());  // kernels, files and messages alike are made of these, whatever an application's locale says
  for (const MessagePart& part : parts) part.print(out);
  return out.str();
}

void throw_internal(MessageParts parts) { throw InternalError(join_message(parts)); }
void throw_user(MessageParts parts, ExitCode code) { throw UserError(join_message(parts), code); }

}  // namespace gcomp
