// Which ways of a library to compute products a device has timed, and which it takes: text that a training keeps with its state, so
// that it goes on with the same bits wherever it does.
//
//   timed choices 1
//   NVIDIA H200, sm_90, 139.8 GiB, driver 13.0.0, cuBLASLt 13.1.0
//   bf16 4096x768x768 ...<tab>0123...
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace gcomp::runtime {

struct TimedChoices {
  std::string of;                             ///< device and libraries, one line; "" where nothing is timed
  std::map<std::string, std::string> chosen;  ///< by product; lines without tabs

  bool operator==(const TimedChoices&) const = default;
};

/// "" where nothing is timed.
std::string to_text(const TimedChoices& choices);
/// Throws UserError where the text was not made by to_text(), be it of another version.
TimedChoices parse_timed_choices(std::string_view text);

/// Why a training that went on with the choices `before`, a text, has others `now`: for the user, in words. "" where it computes as
/// it did.
std::string difference(const std::string& before, const TimedChoices& now);

}  // namespace gcomp::runtime
