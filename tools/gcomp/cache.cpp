// gcomp cache: the compiled kernels that are kept between runs.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "runtime/device.h"
#include "runtime/files/disk_cache.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/report.h"

namespace gcomp::tools {
namespace {

/// Throws UserError where the directory is not this user's own.
runtime::DiskCache open_cache() {
  runtime::DiskCache cache(runtime::default_cache_directory());
  check_user(cache.unusable().empty(), "the kernel cache is not used: ", cache.unusable());
  return cache;
}

std::int64_t bytes_of(const std::vector<runtime::CacheEntry>& entries) {
  std::int64_t bytes = 0;
  for (const runtime::CacheEntry& entry : entries) bytes += entry.bytes;
  return bytes;
}

/// "cubin of gcomp 0.1.0, NVRTC 13.0, sm_90", the timings of products in the same form, or the compiler of CPU kernels.
std::string what(const runtime::CacheEntry& entry) {
  std::vector<std::string> lines;
  std::string rest = entry.key_start;
  for (std::size_t end; (end = rest.find('\n')) != rest.npos; rest.erase(0, end + 1)) lines.push_back(rest.substr(0, end));
  if (lines.size() < 3) return "unreadable";
  if (lines[0].rfind("cubin", 0) == 0 || lines[0].rfind("matmul", 0) == 0) return concat(lines[0], ", ", lines[1], ", ", lines[2]);
  return concat("CPU kernels by ", lines[1]);
}

void list(const Console& console) {
  const runtime::DiskCache cache = open_cache();
  const std::vector<runtime::CacheEntry> entries = cache.entries();
  nlohmann::json all = nlohmann::json::array();
  for (const runtime::CacheEntry& entry : entries) {
    console.result(concat(entry.path.filename().string().substr(0, 16), "  ", bytes_text(entry.bytes), "  ", what(entry)));
    all.push_back({{"file", entry.path.filename().string()}, {"bytes", entry.bytes}, {"key", what(entry)}});
  }
  console.result(concat(cache.directory().string(), ": ", entries.size(), entries.size() == 1 ? " entry, " : " entries, ",
                        bytes_text(bytes_of(entries)), " of at most ", bytes_text(runtime::kMostCacheBytes)));
  console.result_json({{"directory", cache.directory().string()},
                       {"entries", all},
                       {"bytes", bytes_of(entries)},
                       {"most_bytes", runtime::kMostCacheBytes}});
}

void clear(const Console& console) {
  const runtime::DiskCache cache = open_cache();
  const std::vector<runtime::CacheEntry> removed = cache.trim(-1);
  console.result(concat("removed ", removed.size(), removed.size() == 1 ? " entry, " : " entries, ", bytes_text(bytes_of(removed)),
                        ", from ", cache.directory().string()));
  console.result_json({{"directory", cache.directory().string()}, {"removed", removed.size()}, {"bytes", bytes_of(removed)}});
}

}  // namespace

Command add_cache(ArgumentParser& root, Console& console) {
  auto action = std::make_shared<std::string>();
  ArgumentParser parser = root.add_subcommand("cache", "the compiled kernels that are kept between runs");
  parser.add_option("ACTION", *action, "list or clear").required().one_of({"list", "clear"});
  parser.set_footer("Examples:\n  gcomp cache list\n  gcomp cache clear");
  return {parser, [action, &console] { *action == "list" ? list(console) : clear(console); }};
}

}  // namespace gcomp::tools
