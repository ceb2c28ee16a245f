#include "ir/base/error.h"

#include <sstream>

namespace gcomp {

std::string join_message(MessageParts parts) {
  std::ostringstream out;
  for (const MessagePart& part : parts) part.print(out);
  return out.str();
}

void throw_internal(MessageParts parts) { throw InternalError(join_message(parts)); }
void throw_user(MessageParts parts, ExitCode code) { throw UserError(join_message(parts), code); }

}  // namespace gcomp
