// The table of formats: how --data FORMAT:PATH[,option=value] is read, recognised by content, and opened.
//
//   --data photos                         recognised: a folder with a folder of images for each class
//   --data tokens:corpus.bin,length=256   FORMAT:PATH, then options; a value with a comma is quoted
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "data/source.h"
#include "ir/base/definition.h"

namespace gcomp::data {

/// What recognition looks at.
struct PathFacts {
  std::filesystem::path path;
  bool folder = false;
  std::span<const std::byte> head;  ///< the first bytes of a file, at most 4096
  std::uintmax_t size = 0;          ///< of a file
};

/// What is known of a table's columns before it is opened.
struct KnownColumns {
  const KeptColumns* kept = nullptr;  ///< of the model, or of the table before; null for none
  bool trains = true;                 ///< whether the mean of rows at hand may stand for missing values, where none is kept
};

struct OpenRequest {
  std::filesystem::path path;
  const Options& options;                 ///< of the format's definition
  std::span<const WantedArray> wanted{};  ///< none where no model asks, as in `gcomp data inspect`
  KnownColumns known = {};
};

/// One entry of the table. An entry and what it opens stand in a file of their own.
struct Format {
  Definition definition;  ///< name, one line, options
  /// Whether the content is of this format, beyond doubt. The table is asked from first to last. Null: only by name.
  bool (*recognises)(const PathFacts&);
  /// Throws UserError naming the path.
  std::unique_ptr<Source> (*open)(const OpenRequest&);
};

std::span<const Format* const> formats();

/// "FORMAT:PATH,option=value" taken apart.
struct DataSpec {
  std::string text;  ///< as it was given
  const Format* format = nullptr;
  std::filesystem::path path;
  Options options;
};

/// Finds the format by name or content. Throws UserError (exit 2) for an unknown format or option, with the nearest name; exit 3
/// where the path is missing or its content is of no format, with the formats that there are.
DataSpec parse_spec(std::string_view text);
std::unique_ptr<Source> open(const DataSpec& spec, std::span<const WantedArray> wanted = {}, const KnownColumns& known = {});

/// Throws UserError (exit 2) where an option that chooses among a folder's files was given for something else.
void check_of_folder(const OpenRequest& request, std::string_view option);

/// What a format's first bytes are compared with.
bool begins_with(std::span<const std::byte> head, std::string_view bytes);

}  // namespace gcomp::data
