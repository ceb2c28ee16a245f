#include "gcomp/data.h"

#include "data/format.h"
#include "data/number_names.h"
#include "gcomp/driver/opened_data.h"

namespace gcomp {

OpenedData open_data(std::string_view text, const Trainer& trainer, const DataOptions& options) {
  driver::OpenedData opened =
      driver::open_data({.data = {std::string(text)}, .eval_data = {}, .map = options.map, .augment = options.augment}, trainer,
                        driver::wanted_arrays(trainer));
  return {.rows = Owned<Dataset>(opened.train.release()),
          .notes = std::move(opened.notes),
          .classes = std::move(opened.classes),
          .vocabulary = std::move(opened.vocabulary),
          .number_names = std::move(opened.number_names)};
}

OpenedData open_data(std::string_view text) {
  std::unique_ptr<data::Source> source = data::open(data::parse_spec(text));
  OpenedData opened{.rows = Owned<Dataset>(nullptr),
                    .notes = source->notes(),
                    .vocabulary = source->vocabulary(),
                    .number_names = data::text_of(data::number_names(*source))};
  for (std::size_t i = 0; i < source->arrays().size() && opened.classes.empty(); ++i) opened.classes = source->class_names(i);
  opened.rows = Owned<Dataset>(source.release());
  return opened;
}

}  // namespace gcomp
