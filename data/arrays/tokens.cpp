// Tokens of language models as nanoGPT and llm.c write them: 16 or 32 bits each. nanoGPT's files have nothing else; llm.c's begin
// with 256 numbers of 32 bits: a magic one, a version, how many tokens follow (https://github.com/karpathy/llm.c,
// dev/data/data_common.py).
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include "data/arrays/formats.h"
#include "data/arrays/windows.h"
#include "data/folder_listing.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"

namespace gcomp::data {
namespace {

namespace fs = std::filesystem;

struct TokenHeader {
  std::uint32_t magic, version, tokens;
};
constexpr std::uint64_t kTokenHeaderBytes = 1024;

struct TokenFileKind {
  std::uint32_t magic, version;
  int width;
  std::string_view dtype;
};
constexpr TokenFileKind kTokenFiles[] = {{20240520, 1, 2, "uint16"}, {20240801, 7, 4, "uint32"}};
constexpr std::uint32_t kEvaluationMagic = 20240522;  // of multiple-choice questions, which are no run of tokens

const TokenFileKind* kind_of_magic(std::uint32_t magic) {
  const auto* found = std::ranges::find_if(kTokenFiles, [&](const TokenFileKind& kind) { return kind.magic == magic; });
  return found == std::end(kTokenFiles) ? nullptr : found;
}

TokenHeader token_header(std::span<const std::byte> head) {
  TokenHeader header{};
  if (head.size() >= sizeof(header)) std::memcpy(&header, head.data(), sizeof(header));
  return header;
}

bool has_token_header(std::span<const std::byte> head, std::uint64_t size) {
  const TokenHeader header = token_header(head);
  const TokenFileKind* kind = kind_of_magic(header.magic);
  return kind && header.version == kind->version && size >= kTokenHeaderBytes;
}

std::array<std::byte, sizeof(TokenHeader)> token_head(const RandomAccessFile& file) {
  std::array<std::byte, sizeof(TokenHeader)> head{};
  if (file.size() >= head.size()) file.read(0, head);
  return head;
}

/// llm.c's header, in a file or in the first of a folder's .bin files.
bool recognises_tokens(const PathFacts& facts) {
  if (!facts.folder) return has_token_header(facts.head, facts.size);
  const std::vector<fs::path> files = files_in(facts.path, "*.bin");
  if (files.empty()) return false;
  try {
    const RandomAccessFile file(files[0]);
    return has_token_header(token_head(file), file.size());
  } catch (const UserError&) { return false; }
}

TokenRun open_headed(std::shared_ptr<const RandomAccessFile> file, const TokenFileKind& kind, const TokenHeader& header) {
  check_user(header.version == kind.version, "'", file->path(), "': version ", header.version, " of llm.c's token files, wanted ",
             kind.version);
  check_user(file->size() == kTokenHeaderBytes + std::uint64_t{header.tokens} * static_cast<std::uint64_t>(kind.width), "'",
             file->path(), "' has ", file->size(), " bytes, wanted ", kTokenHeaderBytes, " of header and ", kind.width,
             " for each of ", header.tokens, " tokens");
  TokenRun run{.path = file->path(), .offset = kTokenHeaderBytes, .width = kind.width, .tokens = header.tokens};
  run.file = std::move(file);
  return run;
}

TokenRun open_raw_tokens(std::shared_ptr<const RandomAccessFile> file, const Options& options) {
  const int width = options.word("dtype") == "uint32" ? 4 : 2;
  const auto size = static_cast<std::uint64_t>(width);
  check_user(file->size() % size == 0, "'", file->path(), "' has ", file->size(), " bytes, wanted ", width,
             " for each token (dtype=", options.word("dtype"), ")");
  TokenRun run{.path = file->path(), .width = width, .tokens = static_cast<std::int64_t>(file->size() / size)};
  run.file = std::move(file);
  return run;
}

TokenRun open_token_run(const fs::path& path, const Options& options) {
  auto file = std::make_shared<const RandomAccessFile>(path);
  const TokenHeader header = token_header(token_head(*file));
  check_user(header.magic != kEvaluationMagic || header.version != 1, "'", file->path(),
             "' has multiple-choice questions of llm.c, no run of tokens");
  const TokenFileKind* kind = kind_of_magic(header.magic);
  if (!kind) return open_raw_tokens(std::move(file), options);
  check_user(!options.given("dtype") || options.word("dtype") == kind->dtype, "'", file->path(), "': its header says ", kind->dtype,
             ", but dtype=", options.word("dtype"), " was given");
  return open_headed(std::move(file), *kind, header);
}

bool is_for_evaluation(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.find("val") != name.npos || name.find("test") != name.npos;
}

/// The .bin files of one part of a folder; those of the other go to `others`.
std::vector<fs::path> part_of_tokens(const fs::path& folder, const std::string& part, std::vector<std::string>& others) {
  std::vector<fs::path> files;
  for (const fs::path& file : files_in(folder, "*.bin")) {
    if (part == "all" || is_for_evaluation(file) == (part == "val")) files.push_back(file);
    else others.push_back(file.filename().string());
  }
  check_user(!files.empty(), "'", folder.string(), "' has no .bin files of part=", part,
             others.empty() ? std::string() : concat(", it has ", listing(others)));
  return files;
}

std::unique_ptr<Source> open_tokens(const OpenRequest& request) {
  check_of_folder(request, "part");
  const fs::path& path = request.path;
  std::vector<fs::path> files{path};
  WindowExtras extras;
  if (is_folder(path)) {
    std::vector<std::string> others;
    files = part_of_tokens(path, request.options.word("part"), others);
    if (!others.empty())
      extras.notes.push_back(
          concat("of '", path.string(), "', part=", request.options.word("part"), " leaves out ", listing(others)));
  } else if (is_glob(path)) {
    files = files_in(path.parent_path(), path.filename().native());
    check_user(!files.empty(), "no file matches '", path.string(), "'");
  }
  std::vector<TokenRun> runs;
  for (const fs::path& file : files) runs.push_back(open_token_run(file, request.options));
  return open_windows(request, std::move(runs), std::move(extras));
}

constexpr OptionDef kTokenOptions[] = {
    OptionDef::word("dtype", "uint16", "uint16|uint32").says("of files without llm.c's header"),
    kLengthOption,
    kStrideOption,
    OptionDef::word("part", "train", "train|val|all").says("of a folder: files with 'val' or 'test' in their names, or the others"),
};

}  // namespace

constinit const Format kTokensFormat{
    {"tokens", "windows of nanoGPT's or llm.c's token files", kTokenOptions}, recognises_tokens, open_tokens};

}  // namespace gcomp::data
