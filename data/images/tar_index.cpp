#include "data/images/tar_index.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "data/format.h"
#include "ir/base/error.h"

namespace gcomp::data {
namespace {

constexpr std::uint64_t kTarBlock = 512;

struct FreeArchive {
  void operator()(archive* read) const { archive_read_free(read); }
};
using ArchiveReader = std::unique_ptr<archive, FreeArchive>;

struct Compression {
  std::string_view start, name, tool;
};
constexpr Compression kCompressions[] = {{"\x1F\x8B", "gzip", "gunzip"},
                                         {"BZh", "bzip2", "bunzip2"},
                                         {std::string_view("\xFD"
                                                           "7zXZ\0",
                                                           6),
                                          "xz", "unxz"},
                                         {"\x28\xB5\x2F\xFD", "zstd", "unzstd"},
                                         {"\x04\x22\x4D\x18", "lz4", "unlz4"}};

void refuse_compressed(const RandomAccessFile& tar) {
  std::array<std::byte, 8> start{};
  tar.read(0, std::span(start).first(std::min<std::size_t>(tar.size(), start.size())));
  for (const Compression& kind : kCompressions)
    check_user(!begins_with(start, kind.start), "'", tar.path(), "': is compressed with ", kind.name,
               ", so that no row can be read without all before it; decompress it first, with ", kind.tool,
               " (images hardly get smaller by it)");
}

/// Throws where the name could lead out of a folder.
void check_name(std::string_view name, const std::string& where) {
  check_user(!name.empty(), where, ": has no name");
  check_user(name.front() != '/', where, ": its path is absolute");
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('/', at), name.size());
    check_user(name.substr(at, end - at) != "..", where, ": its path has '..'");
    at = end + 1;
  }
}

bool is_hidden(std::string_view name) { return name.front() == '.' || name.find("/.") != name.npos; }

/// A regular file's place, or throws.
void check_plain(archive_entry* entry, const std::string& where) {
  check_user(archive_entry_hardlink(entry) == nullptr && archive_entry_symlink(entry) == nullptr, where,
             ": is a link; make the archive with tar --dereference --hard-dereference");
  check_user(archive_entry_filetype(entry) == AE_IFREG, where, ": is neither a file nor a folder");
  check_user(archive_entry_sparse_count(entry) == 0, where, ": is stored as a sparse file; make the archive without --sparse");
  check_user(archive_entry_size_is_set(entry) != 0 && archive_entry_size(entry) >= 0, where, ": has no size");
}

class TarIndexer {
 public:
  explicit TarIndexer(const std::filesystem::path& path) : tar_{.file = std::make_shared<RandomAccessFile>(path), .files = {}} {}

  TarArchive run();

 private:
  void add(archive_entry* entry, const std::string& name);
  [[noreturn]] void fail(const std::string& after);

  TarArchive tar_;
  ArchiveReader reader_;
  std::uint64_t next_header_ = 0;
  std::unordered_set<std::string> names_;
};

void TarIndexer::fail(const std::string& after) {
  const char* reason = archive_error_string(reader_.get());
  throw UserError(concat("'", tar_.file->path(), "'", after.empty() ? "" : concat(", after entry '", after, "'"),
                         ": is damaged, cut off or no tar archive: ", reason ? reason : "unknown error"));
}

/// Counts where the entry's bytes lie, and makes sure of it: headers and contents follow one another without gaps.
void TarIndexer::add(archive_entry* entry, const std::string& name) {
  const std::string where = concat("'", tar_.file->path(), "', entry '", name, "'");
  const auto header = static_cast<std::uint64_t>(archive_read_header_position(reader_.get()));
  const auto offset = static_cast<std::uint64_t>(archive_filter_bytes(reader_.get(), 0));
  check_name(name, where);
  if (archive_entry_filetype(entry) == AE_IFDIR) {
    next_header_ = 0;
    return;
  }
  check_plain(entry, where);
  const auto bytes = static_cast<std::uint64_t>(archive_entry_size(entry));
  check_user((next_header_ == 0 || header == next_header_) && offset % kTarBlock == 0, where,
             ": what is before it is stored in a way that gcomp does not know");
  const std::uint64_t size = tar_.file->size();
  check_user(offset <= size && bytes <= size - offset, where, ": is cut off: ", bytes, " bytes from ", offset,
             " on, but the archive has ", size);
  next_header_ = offset + (bytes + kTarBlock - 1) / kTarBlock * kTarBlock;
  std::string plain = name;
  while (plain.starts_with("./")) plain.erase(0, 2);
  check_user(names_.insert(plain).second, where, ": comes twice in the archive");
  if (!plain.empty() && !is_hidden(plain)) tar_.files.push_back({std::move(plain), offset, bytes});
}

TarArchive TarIndexer::run() {
  constexpr std::size_t kBuffer = 10240;
  refuse_compressed(*tar_.file);
  reader_.reset(archive_read_new());
  check_internal(reader_ != nullptr && archive_read_support_format_tar(reader_.get()) == ARCHIVE_OK, "libarchive reads no tar");
  if (archive_read_open_fd(reader_.get(), tar_.file->descriptor(), kBuffer) != ARCHIVE_OK) fail("");
  std::string name;
  archive_entry* entry = nullptr;
  for (;;) {
    // A name that is not of this locale is a warning; its bytes are there all the same.
    const int result = archive_read_next_header(reader_.get(), &entry);
    if (result == ARCHIVE_EOF) break;
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN) fail(name);
    const char* path = archive_entry_pathname(entry);
    if (path == nullptr) path = archive_entry_pathname_utf8(entry);
    name = path ? path : "";
    add(entry, name);
  }
  return std::move(tar_);
}

}  // namespace

TarArchive index_tar(const std::filesystem::path& path) { return TarIndexer(path).run(); }

bool names_compressed_tar(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  constexpr std::string_view kSuffixes[] = {".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tar.lz4"};
  return std::any_of(std::begin(kSuffixes), std::end(kSuffixes), [&](std::string_view suffix) { return name.ends_with(suffix); });
}

}  // namespace gcomp::data
