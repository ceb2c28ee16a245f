// What the tool says to people: lines on stderr, coloured only on a terminal. Results go to stdout.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace spdlog {
class logger;
}

namespace gcomp::tools {

/// Text from a model or a file name without control characters, so that it cannot steer a terminal.
std::string printable(std::string_view text);

/// The same for a message: what stands in single quotes is a name, and one of more than 200 characters that is no existing path is
/// cut there, with its length.
std::string printable_message(std::string_view text);

/// Standard input, output and error are open from here on. What was closed reads as empty and cannot be written: without this the
/// next file that the process opens would take its number, and results would be written into that file.
void occupy_standard_streams();

class Console {
 public:
  enum class Level { quiet, normal, verbose };

  Console();
  void set_level(Level level);
  /// Machine-readable results were asked for: result() is silent, result_json() speaks.
  void set_json(bool json) { json_ = json; }
  bool json() const { return json_; }
  /// Nothing is said from here on, errors and results included: another process says it. speak() ends that.
  void silence();
  void speak();
  /// stderr is a terminal that may be redrawn.
  bool terminal() const { return terminal_; }

  /// Lines for people and results go there too, from here on; an empty function ends that.
  void also_to(std::function<void(std::string_view)> lines) const { lines_ = std::move(lines); }

  /// What goes on now: a line that the next one of any kind replaces. Nothing where stderr is no terminal, or with --quiet.
  void status(std::string_view text) const;
  void clear_status() const;

  /// A line for people on stderr.
  void say(std::string_view text) const;
  void detail(std::string_view text) const;  ///< with --verbose only
  void warn(std::string_view text) const;
  void error(std::string_view text) const;
  /// A line of results on stdout; nothing with --json.
  void result(std::string_view text) const;
  /// A part of a line of results, at once; nothing with --json.
  void stream(std::string_view text) const;
  /// Throws UserError where results could not be written, to a full disk, say.
  void check_results() const;
  /// One JSON object on stdout, with the schema's version; nothing without --json.
  void result_json(nlohmann::json object) const;

 private:
  void keep(std::string_view line) const;

  std::shared_ptr<spdlog::logger> log_;
  mutable std::function<void(std::string_view)> lines_;
  bool json_ = false, terminal_ = false, silent_ = false;
  mutable bool status_shown_ = false;
};

/// While alive, a console's lines go there too.
class ConsoleCopy {
 public:
  ConsoleCopy(const Console& console, std::function<void(std::string_view)> lines) : console_(console) {
    console_.also_to(std::move(lines));
  }
  ~ConsoleCopy() { console_.also_to({}); }
  ConsoleCopy(const ConsoleCopy&) = delete;
  ConsoleCopy& operator=(const ConsoleCopy&) = delete;

 private:
  const Console& console_;
};

}  // namespace gcomp::tools
