#include "tools/gcomp/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "ir/base/units.h"

namespace gcomp::tools {
namespace {

constexpr std::int64_t kLines = 20;
constexpr std::chrono::seconds kSilence{10};
constexpr int kTextWidth = 80;  // of all but the bar

int terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 100;
}

/// "1:02:03", "2:03".
void format_time(char* text, std::size_t room, double seconds) {
  const auto whole = static_cast<long>(seconds + 0.5);
  if (whole >= 3600) {
    std::snprintf(text, room, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
  } else {
    std::snprintf(text, room, "%ld:%02ld", whole / 60, whole % 60);
  }
}

}  // namespace

Progress::Progress(const Console& console, std::int64_t steps, std::int64_t epochs, std::int64_t batch, std::int64_t every,
                   std::int64_t before)
    : console_(console),
      steps_(steps),
      epochs_(epochs),
      batch_(batch),
      every_(every),
      before_(before),
      start_(std::chrono::steady_clock::now()),
      drawn_(start_) {}

double Progress::seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

double Progress::rate() const {
  const double elapsed = seconds();
  return elapsed > 0 ? static_cast<double>(done_ * batch_) / elapsed : 0;
}

void Progress::update(const ProgressState& state) {
  done_ = state.step;
  const auto now = std::chrono::steady_clock::now();
  if (!console_.terminal()) {
    const bool due =
        every_ > 0 ? (before_ + state.step) % every_ == 0 : state.step * kLines >= (lines_ + 1) * steps_ || now - drawn_ > kSilence;
    if (state.step != 1 && !due) return;
    lines_ = state.step * kLines / steps_;
    drawn_ = now;
    draw(state);
    return;
  }
  if (before_ + state.step != steps_ && now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  draw(state);
}

void Progress::draw(const ProgressState& state) {
  char left[32], epoch[64] = "", text[256];
  format_time(left, sizeof left, seconds() / static_cast<double>(state.step) * static_cast<double>(steps_ - before_ - state.step));
  if (epochs_ > 0)
    std::snprintf(epoch, sizeof epoch, "epoch %lld/%lld  ", static_cast<long long>(state.epoch), static_cast<long long>(epochs_));
  std::snprintf(text, sizeof text, "step %lld/%lld  %sloss %.6g  %s  %s left", static_cast<long long>(before_ + state.step),
                static_cast<long long>(steps_), epoch, state.loss, rows_rate_text(rate()).c_str(), left);
  if (!console_.terminal()) return console_.say(text);
  const int room = std::clamp(terminal_columns() - kTextWidth, 8, 40);
  const int filled = static_cast<int>((before_ + state.step) * room / steps_);
  char bar[48];
  std::memset(bar, '.', static_cast<std::size_t>(room));
  std::memset(bar, '=', static_cast<std::size_t>(filled));
  std::fprintf(stderr, "\r\x1b[K[%.*s] %s", room, bar, text);
  std::fflush(stderr);
  on_screen_ = true;
}

void Progress::clear() {
  if (!on_screen_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  on_screen_ = false;
}

}  // namespace gcomp::tools
