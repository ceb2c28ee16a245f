#include <algorithm>
#include <cctype>
#include <vector>

#include "data/folder_listing.h"
#include "data/format.h"
#include "data/path_range.h"
#include "data/random_access_file.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"

namespace gcomp::data {
namespace {

constexpr std::size_t kHead = 4096;

std::vector<const Definition*> definitions() {
  std::vector<const Definition*> all;
  for (const Format* format : formats()) all.push_back(&format->definition);
  return all;
}

const Format* find_format(std::string_view name) {
  for (const Format* format : formats())
    if (format->definition.name == name) return format;
  return nullptr;
}

/// Where the options begin: at the first ",word=" after which there are only such; the text's length where there are none.
std::size_t options_begin(std::string_view text) {
  for (std::size_t comma = text.find(','); comma != text.npos; comma = text.find(',', comma + 1)) {
    std::size_t end = comma + 1;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
    if (end > comma + 1 && end < text.size() && text[end] == '=') return comma;
  }
  return text.size();
}

/// By its mark or, without one, by the zeros beside letters as English has them.
bool is_utf16(std::span<const std::byte> head) {
  if (begins_with(head, "\xFF\xFE") || begins_with(head, "\xFE\xFF")) return true;
  const auto is_letters = [&](std::size_t first) {
    constexpr std::size_t kLeast = 8;
    for (std::size_t i = 0; i < head.size(); ++i) {
      const auto byte = std::to_integer<unsigned>(head[i]);
      if (i % 2 != first ? byte != 0 : byte > '~' || (byte < ' ' && byte != '\t' && byte != '\n' && byte != '\r')) return false;
    }
    return head.size() >= kLeast;
  };
  return is_letters(0) || is_letters(1);
}

/// "a file of 12 bytes that begins with 7f 45 4c 46".
std::string described(const PathFacts& facts) {
  if (facts.folder) {
    const std::vector<std::filesystem::path> files = files_in(facts.path, "*");
    if (files.empty()) return "a folder without files";
    return concat("a folder of ", files.size(), files.size() == 1 ? " file, '" : " files, such as '", files[0].filename().string(),
                  "'");
  }
  constexpr std::size_t kShown = 4;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string bytes;
  for (const std::byte byte : facts.head.first(std::min(facts.head.size(), kShown)))
    bytes.append({' ', kDigits[std::to_integer<unsigned>(byte) >> 4], kDigits[std::to_integer<unsigned>(byte) & 15]});
  return concat("a file of ", facts.size, facts.size == 1 ? " byte" : " bytes", " that begins with", bytes);
}

const Format& recognise(const std::filesystem::path& path) {
  PathFacts facts{.path = path, .folder = is_folder(path), .head = {}};
  std::vector<std::byte> head;
  if (!facts.folder) {
    const RandomAccessFile file(path);
    head.resize(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), kHead)));
    file.read(0, head);
    facts.head = head;
    facts.size = file.size();
  }
  for (const Format* format : formats())
    if (format->recognises && format->recognises(facts)) return *format;
  check_user(facts.folder || facts.size > 0, "'", path.string(), "' is empty, wanted a file with data");
  check_user(!is_utf16(facts.head), "'", path.string(), "' is text in UTF-16, wanted UTF-8; iconv -f UTF-16 -t UTF-8 '",
             path.string(), "' writes it so");
  const std::vector<const Definition*> all = definitions();
  throw UserError(concat("'", path.string(), "', ", described(facts),
                         ", is of no format that gcomp recognises by content; name it as FORMAT:PATH, with one of ",
                         names_of(all)));
}

}  // namespace

bool begins_with(std::span<const std::byte> head, std::string_view bytes) {
  return head.size() >= bytes.size() && std::equal(bytes.begin(), bytes.end(), reinterpret_cast<const char*>(head.data()));
}

void check_of_folder(const OpenRequest& request, std::string_view option) {
  if (request.options.given(option) && !is_folder(request.path))
    throw UserError(concat("--data ", request.options.definition().name, ": ", option,
                           "= chooses among the files of a folder, but '", request.path.string(), "' is none"),
                    ExitCode::usage);
}

DataSpec parse_spec(std::string_view text) {
  DataSpec spec;
  spec.text = text;
  std::string_view rest = text;
  if (!is_there(text)) {
    if (const std::size_t colon = text.find(':'); colon != text.npos) {
      spec.format = find_format(text.substr(0, colon));
      if (spec.format) rest = text.substr(colon + 1);
    }
  }
  const std::size_t end = is_there(rest) ? rest.size() : options_begin(rest);
  spec.path = rest.substr(0, end);
  const bool glob = spec.format && is_glob(spec.path);  // the format says what it matches
  const std::filesystem::path first = expand_range(spec.path).front();
  if (!glob && !is_there(first.native())) {
    const std::size_t colon = text.find(':');
    const std::vector<const Definition*> all = definitions();
    if (!spec.format && colon != text.npos && text.find('/') > colon) {
      std::vector<std::string> names;
      for (const Definition* definition : all) names.emplace_back(definition->name);
      const std::string name(text.substr(0, colon));
      throw UserError(
          concat("--data ", text, ": '", name, "' is no format, wanted one of ", names_of(all), did_you_mean(name, names)),
          ExitCode::usage);
    }
    throw UserError(concat("'", first.string(), "' does not exist"));
  }
  if (!spec.format) spec.format = &recognise(first);
  const Definition& definition = spec.format->definition;
  const std::string call =
      end == rest.size() ? std::string(definition.name) : concat(definition.name, "(", rest.substr(end + 1), ")");
  const Definition* const table[] = {&definition};
  spec.options = parse_call(call, table, "format", "--data");
  return spec;
}

std::unique_ptr<Source> open(const DataSpec& spec, std::span<const WantedArray> wanted, const KnownColumns& known) {
  return spec.format->open({.path = spec.path, .options = spec.options, .wanted = wanted, .known = known});
}

}  // namespace gcomp::data
