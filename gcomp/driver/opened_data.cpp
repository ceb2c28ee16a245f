#include "gcomp/driver/opened_data.h"

#include <algorithm>

#include "data/format.h"
#include "data/mapping.h"
#include "data/number_names.h"
#include "data/order/mixture.h"
#include "data/order/sampling.h"
#include "data/order/split.h"
#include "data/transforms/transformed.h"
#include "gcomp/driver/evaluator.h"
#include "gcomp/driver/fit/batch_loader.h"
#include "gcomp/driver/model_source.h"
#include "gcomp/driver/prediction.h"
#include "gcomp/driver/trainer_impl.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"

namespace gcomp::driver {
namespace {

data::WantedArray wanted_input(const ValueInfo& input) {
  data::WantedArray wanted{.name = input.name, .dtype = input.dtype};
  if (!input.has_shape || input.dimensions.empty()) return wanted;
  Shape& row = wanted.row.emplace();
  for (std::size_t i = 1; i < input.dimensions.size(); ++i) row.push_back(input.dimensions[i].size);
  return wanted;
}

std::vector<data::WantedArray> wanted_of(const FedArrays& fed) {
  std::vector<data::WantedArray> wanted;
  for (const FedArray& array : fed.arrays) {
    const Shape& shape = array.type.shape;
    wanted.push_back({.name = array.name,
                      .dtype = array.type.dtype,
                      .row = shape.empty() ? std::optional<Shape>() : Shape(shape.begin() + 1, shape.end()),
                      .input = array.bytes == runtime::ByteForm::pixels});
  }
  return wanted;
}

/// What the program makes floats of is wanted as the floats that it becomes.
std::vector<data::WantedArray> as_the_model_has_them(std::vector<data::WantedArray> wanted, std::span<const InputForm> forms) {
  for (data::WantedArray& array : wanted)
    if (std::ranges::find(forms, array.name, &InputForm::input) != forms.end()) array.dtype = DType::f32;
  return wanted;
}

/// Arrays that decide which rows come, and how often.
std::vector<std::string> deciding_arrays(const DataRequest& request) {
  std::vector<std::string> arrays;
  if (!request.sample.empty()) arrays.push_back(data::Sampling(request.sample).array());
  if (!request.stratify.empty()) arrays.push_back(request.stratify);
  return arrays;
}

/// What is wanted, and the arrays that decide about rows.
std::vector<data::WantedArray> with_deciding(std::span<const data::WantedArray> asked, const DataRequest& request) {
  std::vector<data::WantedArray> wanted(asked.begin(), asked.end());
  for (const std::string& array : deciding_arrays(request))
    if (std::ranges::find(wanted, array, &data::WantedArray::name) == wanted.end())
      wanted.push_back({.name = array, .input = false});
  return wanted;
}

/// A name in the loss may be meant for an output: the message has both.
void require_loss_names(const Model& model, const Dataset& data, std::span<const data::WantedArray> wanted,
                        std::span<const data::MapEntry> map, std::span<const std::string> deciding) {
  std::vector<std::string> arrays, outputs;
  for (const auto& [name, type] : data.arrays()) arrays.push_back(name);
  if (const frontend::OnnxFile* file = onnx_file(model))
    for (const frontend::ValueInfo& output : file->outputs) outputs.push_back(output.name);
  std::vector<std::string> all = outputs;
  all.insert(all.end(), arrays.begin(), arrays.end());
  for (const data::WantedArray& array : wanted) {
    if (array.input || array.name == passes::kLabelArray || std::ranges::find(arrays, array.name) != arrays.end()) continue;
    if (std::ranges::find(deciding, array.name) != deciding.end()) continue;
    if (std::ranges::find(map, array.name, &data::MapEntry::input) != map.end()) continue;
    throw UserError(concat("--loss: '", array.name, "' is no output of '", model.name(), "', which has ", listing(outputs),
                           ", and no array of '", data.source(), "', which has ", listing(arrays), did_you_mean(array.name, all)),
                    ExitCode::usage);
  }
}

/// What draws or splits rows is no input and nothing that the loss reads.
void require_deciding(const Dataset& data, std::span<const std::string> deciding, std::span<const data::MapEntry> map) {
  std::vector<std::string> arrays;
  for (const auto& [name, type] : data.arrays()) arrays.push_back(name);
  for (const std::string& name : deciding) {
    if (std::ranges::find(map, name, &data::MapEntry::input) != map.end()) continue;
    if (std::ranges::find(arrays, name) != arrays.end()) continue;
    throw UserError(concat("'", data.source(), "' has no array '", name, "', by which rows are split or drawn; it has ",
                           listing(arrays), did_you_mean(name, arrays)));
  }
}

/// What becomes of every source of a request.
struct DataPlan {
  std::span<const data::WantedArray> wanted;
  std::vector<data::MapEntry> map;
  data::TransformList training, evaluation;
  const Model* model = nullptr;
  std::vector<std::string> deciding = {};       // deciding_arrays()
  std::optional<data::NumberNames> names = {};  // of the first source, by which all others are numbered
  bool knows_columns = false;                   // whether `names` has those of a model or of a table before
  bool trains = true;                           // DataRequest::trains
};

DataPlan plan_of(const DataRequest& request, std::span<const data::WantedArray> wanted, const Model* model, OpenedData& opened) {
  DataPlan plan{.wanted = wanted,
                .map = {},
                .training = data::parse_transforms(request.augment),
                .evaluation = {},
                .model = model,
                .deciding = deciding_arrays(request),
                .trains = request.trains};
  if (!request.number_names.empty()) plan.names = data::parse_number_names(request.number_names);
  plan.knows_columns = plan.names && !plan.names->columns.empty();
  for (const std::string& entry : request.map) plan.map.push_back(data::parse_map(entry));
  plan.evaluation = request.eval_augment.empty() ? data::evaluation_form(plan.training, &opened.notes)
                                                 : data::parse_transforms(request.eval_augment, "--eval-augment");
  return plan;
}

/// A source, and the arrays of it that are wanted.
struct OpenedSource {
  std::unique_ptr<data::Source> source;
  std::vector<data::MapEntry> arrays;
};

OpenedSource open_source(const std::string& text, DataPlan& plan, OpenedData& opened) {
  data::KnownColumns known{.trains = plan.trains};
  if (plan.knows_columns) known.kept = &plan.names->columns;
  OpenedSource one{.source = data::open(data::parse_spec(text), under_names_of_data(plan.wanted, plan.map), known), .arrays = {}};
  if (plan.names) one.source = data::numbered_as(std::move(one.source), *plan.names);
  else plan.names = data::number_names(*one.source);
  opened.number_names = data::text_of(*plan.names);
  if (plan.model) require_loss_names(*plan.model, *one.source, plan.wanted, plan.map, plan.deciding);
  require_deciding(*one.source, plan.deciding, plan.map);
  data::Chosen chosen = data::choose_arrays(*one.source, plan.wanted, plan.map);
  one.arrays = std::move(chosen.arrays);
  const auto note = [&](std::string text_of_note) {
    if (std::ranges::find(opened.notes, text_of_note) == opened.notes.end()) opened.notes.push_back(std::move(text_of_note));
  };
  for (std::string& said : one.source->notes()) note(std::move(said));
  for (std::string& said : chosen.notes) note(std::move(said));
  for (std::size_t i = 0; i < one.source->arrays().size() && opened.classes.empty(); ++i)
    opened.classes = one.source->class_names(i);
  if (opened.vocabulary.empty()) opened.vocabulary = one.source->vocabulary();
  return one;
}

/// Takes the means of the training rows (all, where there are none), once these are known; the columns of the first table are kept.
void settle_columns(data::Source& source, std::span<const std::int64_t> rows, DataPlan& plan, OpenedData& opened) {
  source.take_means(rows);
  if (plan.knows_columns) return;
  plan.names->columns = source.columns();
  plan.knows_columns = !plan.names->columns.empty();
  opened.number_names = data::text_of(*plan.names);
}

InputForm input_form(const data::ProgramForm& form, std::span<const data::MapEntry> arrays) {
  InputForm made{.input = form.array,
                 .dtype = form.dtype,
                 .divisor = form.pixels ? 255.0 : 1.0,
                 .mean = form.normalization.mean,
                 .std = form.normalization.std};
  for (const data::MapEntry& entry : arrays)
    if (entry.array == form.array) made.input = entry.input;
  if (form.channel_axis >= 0) made.axis = form.channel_axis + 1;
  return made;
}

/// Rows as the transforms make them, under the names that are wanted. `list` is what fetch_in() does.
std::unique_ptr<Dataset> transform(OpenedSource one, const DataPlan& plan, const data::TransformList& list,
                                   data::TransformSettings settings, OpenedData& opened) {
  const std::vector<data::WantedArray> named = under_names_of_data(plan.wanted, one.arrays);
  settings.evaluation = plan.evaluation;
  std::unique_ptr<data::Source> rows = std::move(one.source);
  const std::vector<NamedType> stored = rows->arrays();
  const bool changes = !list.empty() || !plan.evaluation.empty() || std::ranges::any_of(stored, [&](const NamedType& array) {
    return rows->images(static_cast<std::size_t>(&array - stored.data())) != nullptr;
  });
  if (changes) {
    rows = data::transformed(std::move(rows), list, named, std::move(settings));
    std::vector<InputForm> forms;
    for (const data::ProgramForm& form : data::program_forms(list, rows->arrays(), named))
      forms.push_back(input_form(form, one.arrays));
    opened.input_forms = std::move(forms);
    opened.preprocessing = plan.evaluation.text();
  }
  return data::map_arrays(std::move(rows), plan.wanted, one.arrays);
}

/// All rows of all sources. Statistics are those of the first.
void open_whole(const DataRequest& request, DataPlan& plan, OpenedData& opened) {
  std::vector<std::unique_ptr<Dataset>> parts;
  for (const std::string& text : request.data) {
    OpenedSource one = open_source(text, plan, opened);
    settle_columns(*one.source, {}, plan, opened);
    if (parts.empty()) {
      plan.training = data::with_statistics(std::move(plan.training), *one.source);
      plan.evaluation = data::with_statistics(std::move(plan.evaluation), *one.source);
    }
    parts.push_back(transform(std::move(one), plan, plan.training, {}, opened));
  }
  if (parts.size() == 1) opened.train = std::move(parts[0]);
  else opened.train = data::mixture({std::make_move_iterator(parts.begin()), std::make_move_iterator(parts.end())});
}

data::SplitRows split_of(const DataRequest& request, const OpenedSource& one) {
  const data::Source& source = *one.source;
  if (request.stratify.empty())
    return data::split_rows(source.rows(),
                            {.share = *request.split, .sequence = source.is_sequence(), .overlap = source.overlap()});
  if (source.is_sequence())
    throw UserError(concat("--stratify ", request.stratify, ": rows of '", source.source(),
                           "' follow one another, and the last ones are evaluated; leave it out"),
                    ExitCode::usage);
  const auto mapped = std::ranges::find(one.arrays, request.stratify, &data::MapEntry::input);
  const std::string& array = mapped == one.arrays.end() ? request.stratify : mapped->array;
  return data::split_classes(data::class_numbers(source, array, concat("--stratify ", request.stratify, ": ")), *request.split);
}

/// The parts of --split. Each looks at rows of its own, whose transforms may draw partners from the first part alone.
void open_split(const DataRequest& request, DataPlan& plan, OpenedData& opened) {
  OpenedSource one = open_source(request.data[0], plan, opened);
  const auto rows = std::make_shared<data::SplitRows>(split_of(request, one));
  settle_columns(*one.source, rows->first, plan, opened);
  plan.training = data::with_statistics(std::move(plan.training), *one.source, rows->first);
  plan.evaluation = data::with_statistics(std::move(plan.evaluation), *one.source, rows->first);
  data::TransformSettings settings{.partners = std::ssize(rows->first),
                                   .partner = [rows](std::int64_t n) { return rows->first[static_cast<std::size_t>(n)]; }};
  const std::shared_ptr<const Dataset> all = transform(std::move(one), plan, plan.training, std::move(settings), opened);
  opened.train = data::rows_of(all, rows->first);
  opened.eval = data::rows_of(all, rows->second);
  opened.notes.push_back(concat("--split ", *request.split, ": ", rows->first.size(), " rows are trained on, ", rows->second.size(),
                                " evaluated",
                                request.stratify.empty() ? "" : concat(", of each '", request.stratify, "' by this share")));
}

/// What a program that is compiled does with its inputs, and what its file says was done to rows before.
struct KeptPreparation {
  const std::vector<InputForm>& forms;
  const std::string &preprocessing, &number_names;
};

OpenedData open_as_kept(DataRequest request, const KeptPreparation& kept, std::span<const data::WantedArray> wanted) {
  const bool as_kept = request.augment.empty() && !kept.preprocessing.empty();
  if (as_kept) request.augment = kept.preprocessing;
  request.number_names = kept.number_names;
  OpenedData opened = open_data(request, wanted);
  if (opened.input_forms != kept.forms && !request.augment.empty())
    throw UserError(concat("--augment ", request.augment, ": the program was compiled for rows prepared by '", kept.preprocessing,
                           "', which it normalizes otherwise"),
                    ExitCode::usage);
  if (as_kept) opened.notes.push_back(concat("rows are prepared by '", request.augment, "', which the model keeps"));
  return opened;
}

}  // namespace

std::vector<data::WantedArray> wanted_arrays(const Model& model, const LossSpec& loss,
                                             std::span<const passes::MetricSpec> metrics) {
  std::vector<data::WantedArray> wanted = wanted_inputs(model);
  for (std::string& array : loss_arrays(model, loss, metrics)) wanted.push_back({.name = std::move(array), .input = false});
  return wanted;
}

std::vector<data::WantedArray> wanted_inputs(const Model& model) {
  std::vector<data::WantedArray> wanted;
  for (const ValueInfo& input : model.inputs()) wanted.push_back(wanted_input(input));
  return wanted;
}

std::vector<data::WantedArray> wanted_inputs(const Predictor& predictor) {
  FedArrays fed;
  for (auto& [name, type] : program_inputs(predictor))
    fed.arrays.push_back({.name = name, .type = type, .bytes = runtime::ByteForm::pixels});
  return as_the_model_has_them(wanted_of(fed), predictor.input_forms());
}

std::vector<data::WantedArray> wanted_arrays(const Trainer& trainer) {
  return as_the_model_has_them(wanted_of(fed_arrays(trainer)), trainer.input_forms());
}

std::vector<data::WantedArray> wanted_for_evaluation(Trainer& trainer) {
  return as_the_model_has_them(wanted_of(fed_arrays(trainer.impl().evaluation().executable().program(), {})),
                               trainer.input_forms());
}

Evaluation evaluate(Trainer& trainer, const Dataset& data, int workers, const Ranks& ranks, const BadRows& bad) {
  Evaluator& evaluator = trainer.impl().used_evaluation();
  const FedArrays fed = fed_arrays(evaluator.executable().program(), label_limits(trainer));
  return evaluator.run(data, label_limits(trainer), workers < 0 ? default_workers(data, fed) : workers, ranks, bad);
}

OpenedData open_data(const DataRequest& request, std::span<const data::WantedArray> asked, const Model* model) {
  check_internal(!request.data.empty(), "no data are asked for");
  const std::vector<data::WantedArray> wanted = with_deciding(asked, request);
  OpenedData opened;
  DataPlan plan = plan_of(request, wanted, model, opened);
  if (!request.stratify.empty() && !request.split)
    throw UserError(concat("--stratify ", request.stratify, ": nothing is split; give the share to train on, such as --split 0.9"),
                    ExitCode::usage);
  if (request.split && request.data.size() > 1)
    throw UserError(concat("--split ", *request.split, ": there are ", request.data.size(),
                           " sources of --data; give what is evaluated as --eval-data"),
                    ExitCode::usage);
  if (request.split) {
    if (!request.eval_data.empty())
      throw UserError("--split and --eval-data: the rows to evaluate are part of --data, or other data; give one of them",
                      ExitCode::usage);
    open_split(request, plan, opened);
    return opened;
  }
  open_whole(request, plan, opened);
  if (request.eval_data.empty()) return opened;
  OpenedData other;
  plan.trains = false;
  opened.eval = transform(open_source(request.eval_data, plan, other), plan, plan.evaluation, {}, other);
  opened.notes.insert(opened.notes.end(), other.notes.begin(), other.notes.end());
  return opened;
}

OpenedData open_data(DataRequest request, const Trainer& trainer, std::span<const data::WantedArray> wanted) {
  return open_as_kept(std::move(request), {trainer.input_forms(), trainer.preprocessing(), trainer.number_names()}, wanted);
}

OpenedData open_data(DataRequest request, const Predictor& predictor, std::span<const data::WantedArray> wanted) {
  return open_as_kept(std::move(request), {predictor.input_forms(), predictor.preprocessing(), predictor.number_names()}, wanted);
}

std::vector<std::string> paths_of(const DataRequest& request) {
  std::vector<std::string> paths;
  std::vector<std::string> texts = request.data;
  texts.push_back(request.eval_data);
  for (const std::string& text : texts)
    if (!text.empty()) try {
        const data::DataSpec spec = data::parse_spec(text);
        paths.push_back(spec.path.string());
        if (spec.options.knows("vocabulary") && spec.options.has("vocabulary")) paths.push_back(spec.options.word("vocabulary"));
      } catch (const UserError&) {}  // opening it says why
  return paths;
}

std::map<std::string, TensorType> types_of(const Dataset& data) {
  std::map<std::string, TensorType> types;
  for (auto& [name, row] : data.arrays()) {
    TensorType type{row.dtype, {data.rows()}};
    type.shape.insert(type.shape.end(), row.shape.begin(), row.shape.end());
    types.emplace(name, std::move(type));
  }
  return types;
}

}  // namespace gcomp::driver
