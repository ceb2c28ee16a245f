// Data as people have them: folders of images, tables, files of tokens and arrays, opened by the texts that gcomp train takes.
//
//   gcomp::OpenedData data = gcomp::open_data("photos", trainer);   // recognised by content
//   gcomp::fit(trainer, *data.rows, {.epochs = 10});
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gcomp/dataset.h"
#include "gcomp/trainer.h"

namespace gcomp {

/// As the options of the command are called, and messages call them so: --map.
struct DataOptions {
  std::vector<std::string> map = {};  ///< "input=array", where their names differ
  std::string augment = {};  ///< transforms of rows: "random_crop(32, padding=4), hflip"; without, as the trainer keeps them
};

struct OpenedData {
  Owned<Dataset> rows;
  std::vector<std::string> notes = {};    ///< what was assumed or tolerated, a sentence each
  std::vector<std::string> classes = {};  ///< names of those that `label` counts; none where nothing names them
  std::string vocabulary = {};            ///< Vocabulary::parse() reads it; "" for none
  std::string number_names = {};          ///< of both, for GraphOptions::number_names; "" for none
};

/// "PATH", recognised by content, or "FORMAT:PATH,option=value" (docs/data.md), with the arrays that the trainer reads, by its
/// names. Throws UserError for what is missing or damaged, of no known format, or does not fit.
OpenedData open_data(std::string_view data, const Trainer& trainer, const DataOptions& options = {});
/// The same with all arrays as the format names them. Images of sizes of their own cannot be fetched so: give them a size.
OpenedData open_data(std::string_view data);

}  // namespace gcomp
