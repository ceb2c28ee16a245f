#include "tools/gcomp/console.h"

#include <fcntl.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "ir/base/error.h"
#include "runtime/metrics.h"

namespace gcomp::tools {
namespace {

constexpr int kJsonSchema = 1;

bool no_colour() {
  const char* value = std::getenv("NO_COLOR");
  return value && *value;
}

}  // namespace

std::string printable(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string safe;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte >= 32 && byte != 127) || c == '\n' || c == '\t') {
      safe.push_back(c);
    } else {
      safe += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return safe;
}

std::string printable_message(std::string_view text) {
  constexpr std::size_t kLongestName = 200;
  std::string message;
  for (std::size_t at = 0; at < text.size(); ++at) {
    message.push_back(text[at]);
    const bool opens = text[at] == '\'' && (at == 0 || !std::isalnum(static_cast<unsigned char>(text[at - 1])));  // no apostrophe
    const std::size_t end = opens ? text.find('\'', at + 1) : text.npos;
    if (end == text.npos) continue;
    const std::string_view name = text.substr(at + 1, end - at - 1);
    std::error_code error;
    if (name.size() <= kLongestName || std::filesystem::exists(name, error)) message += concat(name, "'");
    else message += concat(name.substr(0, kLongestName), "...' (", name.size(), " characters)");
    at = end;
  }
  return printable(message);
}

void occupy_standard_streams() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(number, F_GETFD) < 0 && errno == EBADF) open("/dev/null", O_RDONLY);  // the lowest free number is this one
}

Console::Console() : terminal_(isatty(STDERR_FILENO) != 0) {
  const char* kind = std::getenv("TERM");
  if (kind && std::string_view(kind) == "dumb") terminal_ = false;
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(no_colour() ? spdlog::color_mode::never
                                                                                : spdlog::color_mode::automatic);
  sink->set_color(spdlog::level::info, "");
  sink->set_color(spdlog::level::debug, "");
  log_ = std::make_shared<spdlog::logger>("gcomp", std::move(sink));
  log_->set_pattern("%^%v%$");
}

void Console::set_level(Level level) {
  log_->set_level(level == Level::quiet     ? spdlog::level::warn
                  : level == Level::verbose ? spdlog::level::debug
                                            : spdlog::level::info);
}

void Console::silence() {
  silent_ = true;
  log_->set_level(spdlog::level::off);
}
void Console::speak() {
  silent_ = false;
  set_level(Level::quiet);
}

void Console::status(std::string_view text) const {
  if (silent_ || !terminal_ || !log_->should_log(spdlog::level::info)) return;
  const std::string line = "\r\x1b[K" + printable(text);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  status_shown_ = true;
}

void Console::clear_status() const {
  if (!std::exchange(status_shown_, false)) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

void Console::keep(std::string_view line) const {
  if (lines_) lines_(line);
}

void Console::say(std::string_view text) const {
  clear_status();
  const std::string line = printable_message(text);
  log_->info("{}", line);
  keep(line);
}
void Console::detail(std::string_view text) const {
  clear_status();
  log_->debug("{}", printable_message(text));
}
void Console::warn(std::string_view text) const {
  clear_status();
  const std::string line = "warning: " + printable_message(text);
  log_->warn("{}", line);
  keep(line);
}
void Console::error(std::string_view text) const {
  clear_status();
  const std::string line = printable_message(text);
  log_->error("{}", line);
  keep(line);
}

void Console::result(std::string_view text) const { stream(concat(text, "\n")); }

void Console::stream(std::string_view text) const {
  clear_status();
  keep(printable(text));
  if (json_ || silent_) return;
  const std::string part = printable(text);
  std::fwrite(part.data(), 1, part.size(), stdout);
  std::fflush(stdout);
}

void Console::check_results() const { check_user(std::ferror(stdout) == 0, "cannot write to standard output"); }

namespace {

/// What JSON has no number for, as runtime::append_json() spells it: null, and beside it NAME_text.
void spell_not_finite(nlohmann::json& value) {
  std::vector<std::pair<std::string, std::string>> texts;
  if (value.is_object())
    for (const auto& [name, member] : value.items())
      if (member.is_number_float() && !std::isfinite(member.get<double>()))
        texts.emplace_back(name + "_text", runtime::text_of_not_finite(member.get<double>()));
  for (auto& [name, text] : texts) value[name] = std::move(text);
  if (value.is_structured())
    for (nlohmann::json& member : value) spell_not_finite(member);
}

}  // namespace

void Console::result_json(nlohmann::json object) const {
  if (!json_ || silent_) return;
  spell_not_finite(object);
  object["schema"] = kJsonSchema;
  const std::string line = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

}  // namespace gcomp::tools
