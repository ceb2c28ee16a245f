#include "gcomp/driver/checkpoint_parts.h"

#include <chrono>
#include <string>
#include <thread>

#include "gcomp/driver/saved_json.h"
#include "ir/base/error.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/strict_json.h"

namespace gcomp::driver {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr char kPartPrefix[] = ".part-", kFailed[] = ".failed", kListFile[] = "part.json";
constexpr std::uintmax_t kLargestList = std::uintmax_t{1} << 28;
constexpr int kListNesting = 8;

fs::path part_path(const fs::path& checkpoint, int rank, int ranks) {
  return checkpoint.parent_path() / concat(kPartPrefix, checkpoint.filename().string(), "-", rank, "-of-", ranks);
}
fs::path failure_path(const fs::path& part) { return part.string() + kFailed; }

std::string text_of(const fs::path& path) {
  const std::vector<std::byte> bytes = runtime::read_file(path, kLargestList);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string list_text(const Manifest& manifest) {
  json files = json::object(), pieces = json::array();
  for (const auto& [name, digest] : manifest.files) files[name] = {{"bytes", digest.bytes}, {"sha256", digest.sha256}};
  for (const auto& [name, tensor] : manifest.tensors)
    for (const TensorPiece& piece : tensor.pieces)
      pieces.push_back({{"tensor", name}, {"file", piece.file}, {"offset", piece.offset}, {"length", piece.length}});
  return json{{"files", files}, {"pieces", pieces}}.dump();
}

void write_list(runtime::AtomicFolder& folder, const Manifest& manifest) {
  folder.begin_file(kListFile);
  const std::string text = list_text(manifest);
  folder.write(std::as_bytes(std::span(text)));
  folder.end_file();
}

/// Says why there will be no part; where that cannot be written either, the first rank's patience ends.
void leave_failure(const fs::path& part, const std::string& reason) {
  try {
    runtime::write_file(failure_path(part), std::as_bytes(std::span(reason)));
  } catch (const UserError&) {
    std::error_code ignored;
    fs::create_directory(failure_path(part), ignored);
  }
}

void wait_for(const fs::path& part, int rank, double patience) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  std::chrono::milliseconds pause(2);
  std::error_code ignored;
  while (!fs::exists(part / kListFile, ignored)) {
    const fs::path failure = failure_path(part);
    if (fs::exists(failure, ignored)) {
      const std::string reason = fs::is_regular_file(failure, ignored) ? text_of(failure) : "its part could not be written";
      fs::remove_all(failure, ignored);
      throw UserError(concat("rank ", rank, ": ", reason));
    }
    check_user(std::chrono::duration<double>(Clock::now() - begin).count() < patience, "rank ", rank, " has not written '",
               part.string(), "' within ", patience, " s");
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(200));
  }
}

void take_part(const fs::path& part, runtime::AtomicFolder& folder, Manifest& manifest) {
  const json list = runtime::parse_strict_json(text_of(part / kListFile), kListNesting);
  Members members(list);
  for (const auto& [name, digest] : members.at("files").items()) {
    Members file(digest);
    manifest.files[name] = {file.natural("bytes"), read_digest(file)};
    folder.take_file(part / name, name);
  }
  for (const json& piece : members.list("pieces")) {
    Members one(piece);
    manifest.tensors.at(one.text("tensor"))
        .pieces.push_back({one.text("file"), one.integer("offset", 0), one.integer("length", 0)});
  }
  runtime::remove_folder(part);
}

}  // namespace

void write_part(const fs::path& path, const Snapshot& snapshot) {
  const fs::path part = part_path(path, snapshot.rank, snapshot.ranks);
  try {
    runtime::AtomicFolder folder(part);
    Manifest manifest;
    write_shares(folder, snapshot, manifest);
    write_list(folder, manifest);
    folder.commit();
  } catch (const std::bad_alloc&) {
    leave_failure(part, "out of memory");
    throw;
  } catch (const std::exception& error) {
    leave_failure(part, error.what());
    throw;
  }
}

void collect_parts(const fs::path& path, int ranks, double patience, runtime::AtomicFolder& folder, Manifest& manifest) {
  for (int rank = 1; rank < ranks; ++rank) {
    const fs::path part = part_path(path, rank, ranks);
    wait_for(part, rank, patience);
    try {
      take_part(part, folder, manifest);
    } catch (const UserError& error) { throw UserError(concat("rank ", rank, "'s '", part.string(), "': ", error.what())); }
  }
}

void remove_parts(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().filename().string().starts_with(kPartPrefix)) fs::remove_all(entry.path(), ignored);
}

}  // namespace gcomp::driver
