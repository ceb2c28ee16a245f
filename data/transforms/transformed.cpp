#include "data/transforms/transformed.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "data/transforms/colours.h"
#include "data/transforms/geometry.h"
#include "data/transforms/layout.h"
#include "data/transforms/rule.h"
#include "ir/base/dtype.h"
#include "ir/base/nearest.h"

namespace gcomp::data {
namespace {

using RuleKind = TransformRule::Kind;

/// What one call does to one array.
struct Step {
  std::size_t position = 0;  ///< in the list: draws are keyed by it
  std::unique_ptr<ImageTransform> image;
  std::unique_ptr<ArrayTransform> array;
  bool mixes = false;
  MixRule mix = {};
};

struct Chain {
  std::vector<Step> steps;
  TensorType result;
};

/// What a thread keeps from row to row. One for each row in work at once: mixing needs that of its partner.
struct Scratch {
  ImageInHand image;
  std::vector<std::byte> bytes, spare;
};

class ScratchLease {
 public:
  ScratchLease() {
    if (depth() == pool().size()) pool().push_back(std::make_unique<Scratch>());
    scratch_ = pool()[depth()++].get();
  }
  ScratchLease(const ScratchLease&) = delete;
  ScratchLease& operator=(const ScratchLease&) = delete;
  ~ScratchLease() { --depth(); }
  Scratch* operator->() const { return scratch_; }
  Scratch& operator*() const { return *scratch_; }

 private:
  static std::vector<std::unique_ptr<Scratch>>& pool() {
    thread_local std::vector<std::unique_ptr<Scratch>> kept;
    return kept;
  }
  static std::size_t& depth() {
    thread_local std::size_t leased = 0;
    return leased;
  }
  Scratch* scratch_;
};

/// What `ask` gives of a row; nothing where it cannot be read, which is an error when the row is due.
template <class Ask>
auto unless_unreadable(Ask ask) -> std::optional<decltype(ask())> {
  try {
    return ask();
  } catch (const UserError&) { return std::nullopt; }
}

/// Of the first image that can be read. Throws UserError where none can.
int stored_channels(const ImageSource& images, std::int64_t rows) {
  for (std::int64_t row = 0; row < rows; ++row)
    if (const auto channels = unless_unreadable([&] { return images.channels(row); })) return *channels;
  return rows > 0 ? images.channels(0) : 3;
}

/// Pixels between [H,W,C] and channel by channel.
void to_planes(const std::uint8_t* from, std::size_t pixels, std::size_t channels, std::uint8_t* to) {
  for (std::size_t c = 0; c < channels; ++c)
    for (std::size_t i = 0; i < pixels; ++i) to[c * pixels + i] = from[i * channels + c];
}
void from_planes(const std::uint8_t* from, std::size_t pixels, std::size_t channels, std::uint8_t* to) {
  for (std::size_t c = 0; c < channels; ++c)
    for (std::size_t i = 0; i < pixels; ++i) to[i * channels + c] = from[c * pixels + i];
}

/// Which other row a row is mixed with, and how.
struct Mix {
  bool happens = false;
  std::int64_t partner = 0;
  double share = 1;  ///< of the row itself
  Box box = {};      ///< of cutmix
};

/// An array that comes out as images.
struct ImageArray {
  bool of_own_size = false;  ///< the source has it as ImageSource
  ImageLayout from = ImageLayout::chw, to = ImageLayout::chw;
  ImageShape row;     ///< in the source; of those of their own size only channels
  ImageShape result;  ///< that all have
};

class Transformed final : public Source {
 public:
  Transformed(std::unique_ptr<Source> source, const TransformList& list, std::span<const WantedArray> wanted,
              TransformSettings settings)
      : source_(std::move(source)), settings_(std::move(settings)), types_(source_->arrays()) {
    if (settings_.partners <= 0 || !settings_.partner) settings_.partners = source_->rows();
    const TransformList evaluation = settings_.evaluation ? *settings_.evaluation : evaluation_form(list);
    check_user(!is_random(evaluation), "what evaluation does draws nothing, found ", evaluation.text());
    raw_ = types_;
    for (std::size_t i = 0; i < types_.size(); ++i) images_.push_back(find_image(i, list, evaluation, wanted));
    check_names(list);
    check_names(evaluation);
    training_ = chains(list, wanted);
    evaluation_ = chains(evaluation, wanted);
    for (std::size_t i = 0; i < types_.size(); ++i) {
      check_user(training_[i].result == evaluation_[i].result, source_->source(), ": rows of '", types_[i].first, "' are ",
                 to_string(training_[i].result), " in training and ", to_string(evaluation_[i].result), " in evaluation");
      types_[i].second = training_[i].result;
    }
  }

  std::string source() const override { return source_->source(); }
  std::int64_t rows() const override { return source_->rows(); }
  std::vector<NamedType> arrays() const override { return types_; }
  bool thread_safe() const override { return source_->thread_safe(); }
  std::string where(std::int64_t row) const override { return source_->where(row); }
  std::vector<std::string> class_names(std::size_t array) const override { return source_->class_names(array); }
  bool is_sequence() const override { return source_->is_sequence(); }
  std::int64_t overlap() const override { return source_->overlap(); }
  std::vector<std::string> notes() const override { return source_->notes(); }
  std::string vocabulary() const override { return source_->vocabulary(); }
  const Tensor* whole(std::size_t array) const override { return is_plain(array) ? source_->whole(array) : nullptr; }

  void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override {
    if (is_plain(array)) return source_->fetch(array, row, bytes);
    produce(evaluation_, {}, false, array, row, bytes);
  }
  void fetch_in(const EpochKey& key, std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override {
    if (is_plain(array)) return source_->fetch_in(key, array, row, bytes);
    produce(training_, key, true, array, row, bytes);
  }

 private:
  using Chains = std::vector<Chain>;

  bool has_images() const { return std::ranges::any_of(images_, &std::optional<ImageArray>::has_value); }
  bool is_plain(std::size_t array) const {
    return !images_[array] && training_[array].steps.empty() && evaluation_[array].steps.empty();
  }

  std::size_t find_array(std::string_view name, std::string_view what) const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < types_.size(); ++i) {
      if (types_[i].first == name) return i;
      names.push_back(types_[i].first);
    }
    throw UserError(
        concat(what, ": ", source(), " has no array '", name, "', there is ", listing(names), did_you_mean(name, names)));
  }

  void check_names(const TransformList& list) const {
    for (const TransformCall& call : list.calls) {
      if (call.rule->names_array) static_cast<void>(find_array(call.array, call.text()));
      if (call.rule->kind == RuleKind::mix) static_cast<void>(find_array(mix_rule(call).label, call.text()));
      check_user(call.rule->kind != RuleKind::image || has_images(), call.text(), ": ", source(), " has no images");
    }
  }

  static std::vector<std::unique_ptr<ImageTransform>> image_transforms(const TransformList& list) {
    std::vector<std::unique_ptr<ImageTransform>> made;
    for (const TransformCall& call : list.calls)
      if (call.rule->image) made.push_back(call.rule->image(call.options));
    return made;
  }

  static std::optional<ImageSize> size_after(const TransformList& list, std::optional<ImageSize> size) {
    for (const auto& transform : image_transforms(list)) size = transform->size_of(size);
    return size;
  }

  /// The one size of all images that can be read. Where nothing in the list gives it, each is looked at.
  ImageSize size_of_all(const ImageSource& images, const TransformList& list, std::optional<ImageSize> wanted) const {
    const auto transforms = image_transforms(list);
    std::optional<ImageSize> size;
    for (std::int64_t row = 0; row < rows(); ++row) {
      std::optional<ImageSize> found = unless_unreadable([&] { return images.size(row); });
      if (!found) continue;
      for (const auto& transform : transforms) found = transform->size_of(found);
      if (!size) size = wanted ? wanted : found;
      if (found != size)
        throw UserError(concat(where(row), " is ", found->height, " x ", found->width, " (height x width)",
                               transforms.empty() ? "" : concat(" after ", list.text()), ", wanted ", size->height, " x ",
                               size->width, wanted ? "" : " like those before it", "; --augment 'resize([", size->height, ", ",
                               size->width, "])' or another transform with a size makes them so"));
    }
    check_user(rows() > 0, source(), " has no rows");
    return size ? *size : images.size(0);  // which says what is wrong with it
  }

  /// Whether and how an array is of images; nothing where it is not.
  std::optional<ImageArray> find_image(std::size_t array, const TransformList& list, const TransformList& evaluation,
                                       std::span<const WantedArray> wanted) const {
    const auto& [name, type] = types_[array];
    const ImageSource* own = source_->images(array);
    const auto want = std::ranges::find(wanted, name, &WantedArray::name);
    const bool is_wanted = want != wanted.end();
    static const std::optional<Shape> kAnyRow;
    const std::optional<Shape>& row = is_wanted ? want->row : kAnyRow;
    if (!own) {
      const bool asks = std::ranges::any_of(
          list.calls, [](const TransformCall& call) { return call.rule->kind == RuleKind::image || call.rule == &kCutmix; });
      if (!asks || type.dtype != DType::u8 || !is_image_shape(type.shape)) return std::nullopt;
      if (!wanted.empty() && !(is_wanted && want->input)) return std::nullopt;
    }
    ImageArray image;
    image.of_own_size = own != nullptr;
    if (own) image.row.channels = stored_channels(*own, rows());
    else image.from = layout_of(type.shape), image.row = image_shape(type.shape);
    image.to = row ? layout_of(*row) : image.from;
    check_user(!row || (!row->empty() && row->size() <= 3), source(), ": '", name, "' is of images, a row that is wanted has ",
               row ? row->size() : 0, " dimensions");
    image.result = wanted_shape(image, row);
    settle_size(image, array, list, evaluation, row);
    return image;
  }

  /// What of an image the wanted row says; 0 for what it does not.
  static ImageShape wanted_shape(const ImageArray& image, const std::optional<Shape>& row) {
    ImageShape made{.channels = image.row.channels, .height = 0, .width = 0};
    if (!row) return made;
    const auto side = [&](std::size_t axis) { return static_cast<int>(std::clamp<std::int64_t>((*row)[axis], 0, 1 << 20)); };
    if (image.to == ImageLayout::flat) return made;
    const bool hwc = image.to == ImageLayout::hwc, hw = image.to == ImageLayout::hw;
    made.height = side(hwc || hw ? 0 : 1), made.width = side(hwc || hw ? 1 : 2);
    if (hw) made.channels = 1;
    else if (const int channels = side(hwc ? 2 : 0); channels > 0) made.channels = channels;
    return made;
  }

  void settle_size(ImageArray& image, std::size_t array, const TransformList& list, const TransformList& evaluation,
                   const std::optional<Shape>& row) const {
    const std::string& name = types_[array].first;
    check_user(is_channels(image.result.channels), source(), ": '", name, "' is of images, a row of ", image.result.channels,
               " channels is wanted, not of 1 or 3");
    std::optional<ImageSize> wanted;
    if (image.result.height > 0 && image.result.width > 0) wanted = ImageSize{image.result.height, image.result.width};
    std::optional<ImageSize> stored;
    if (!image.of_own_size) stored = ImageSize{image.row.height, image.row.width};
    const auto settled = [&](const TransformList& calls) {
      if (const auto size = size_after(calls, stored)) return *size;
      return size_of_all(*source_->images(array), calls, wanted);
    };
    const ImageSize size = settled(list), evaluated = settled(evaluation);
    check_user(size == evaluated, source(), ": images of '", name, "' have ", size.height, " x ", size.width,
               " pixels in training and ", evaluated.height, " x ", evaluated.width, " in evaluation");
    image.result.height = size.height, image.result.width = size.width;
    if (image.to == ImageLayout::flat && row && (*row)[0] > 0) {
      const std::int64_t pixels = static_cast<std::int64_t>(size.height) * size.width;
      image.result.channels = (*row)[0] == 3 * pixels ? 3 : 1;
    }
    const Shape made = row_shape(image.to, image.result);
    for (std::size_t axis = 0; row && axis < made.size(); ++axis)
      check_user((*row)[axis] < 0 || (*row)[axis] == made[axis], source(), ": images of '", name, "' become ",
                 to_string(TensorType{DType::u8, made}), ", wanted rows of ", to_string(TensorType{DType::u8, *row}).substr(2));
  }

  Chains chains(const TransformList& list, std::span<const WantedArray> wanted) const {
    Chains made(raw_.size());
    for (std::size_t i = 0; i < raw_.size(); ++i)
      made[i].result = images_[i] ? TensorType{DType::u8, row_shape(images_[i]->to, images_[i]->result)} : raw_[i].second;
    for (std::size_t position = 0; position < list.calls.size(); ++position) {
      const TransformCall& call = list.calls[position];
      if (call.rule->kind == RuleKind::mix) {
        add_mix(made, call, position, wanted);
      } else if (call.rule->array) {
        add_array(made[find_array(call.array, call.text())], call, position);
      } else if (call.rule->image) {
        for (std::size_t i = 0; i < made.size(); ++i)
          if (images_[i]) made[i].steps.push_back({.position = position, .image = call.rule->image(call.options), .array = {}});
      }
    }
    return made;
  }

  void add_array(Chain& chain, const TransformCall& call, std::size_t position) const {
    check_user(!images_[find_array(call.array, call.text())], source(), ": ", call.text(), ": '", call.array, "' is of images");
    try {
      chain.steps.push_back({.position = position, .image = {}, .array = call.rule->array(call.options, chain.result)});
    } catch (const UserError& error) { throw UserError(concat(source(), ": '", call.array, "': ", error.what()), error.code()); }
    chain.result = chain.steps.back().array->result();
  }

  /// Whether the model reads an array or, where none is there to ask, it may: rows of floats or bytes, unless there are images.
  bool is_input(std::size_t array, const TensorType& type, std::span<const WantedArray> wanted) const {
    if (wanted.empty()) return !has_images() && !type.shape.empty() && (is_float(type.dtype) || type.dtype == DType::u8);
    return std::ranges::any_of(wanted, [&](const WantedArray& want) { return want.input && want.name == raw_[array].first; });
  }

  /// Mixing is of images, of inputs of floats, and of the label, which becomes one-hot where it is not.
  void add_mix(Chains& made, const TransformCall& call, std::size_t position, std::span<const WantedArray> wanted) const {
    const MixRule rule = mix_rule(call);
    const std::size_t label = find_array(rule.label, call.text());
    if (Chain& chain = made[label]; is_integer(chain.result.dtype)) {
      const std::int64_t classes = rule.classes > 0 ? rule.classes : static_cast<std::int64_t>(source_->class_names(label).size());
      check_user(classes > 0, source(), ": ", call.text(), ": the data do not say how many classes '", rule.label,
                 "' has; give classes=N");
      TransformCall one_hot{.rule = &kOneHot, .array = rule.label, .options = Options(kOneHot.definition)};
      one_hot.options.set("classes", static_cast<double>(classes), "classes");
      add_array(chain, one_hot, position);
    }
    bool any = false;
    for (std::size_t i = 0; i < made.size(); ++i) {
      const bool blends = images_[i] || (i != label && !rule.boxes && is_input(i, made[i].result, wanted));
      check_user(!blends || images_[i] || made[i].result.dtype == DType::f32 || made[i].result.dtype == DType::u8, source(), ": ",
                 call.text(), ": '", raw_[i].first, "' is ", to_string(made[i].result), ", which cannot be mixed");
      if (!blends && i != label) continue;
      any = any || blends;
      made[i].steps.push_back({.position = position, .image = {}, .array = {}, .mixes = true, .mix = rule});
    }
    check_user(any, source(), ": ", call.text(), " finds no images", rule.boxes ? "" : " or inputs of floats or bytes", " to mix");
    check_user(made[label].result.dtype == DType::f32, source(), ": ", call.text(), ": '", rule.label, "' is ",
               to_string(made[label].result), ", wanted integers or f32");
  }

  /// The same for every array of a row.
  Mix mix_of(const Step& step, const EpochKey& key, std::int64_t row) const {
    Draws draws(key, row, step.position);
    Mix mix{.happens = draws.chance(step.mix.p)};
    if (!mix.happens) return mix;
    mix.partner = draws.below(settings_.partners);
    if (settings_.partner) mix.partner = settings_.partner(mix.partner);
    mix.share = draws.beta(step.mix.alpha);
    if (!step.mix.boxes) return mix;
    const auto image = std::ranges::find_if(images_, [](const auto& found) { return found.has_value(); });
    const ImageSize size{(*image)->result.height, (*image)->result.width};
    mix.box = cutmix_box(size, mix.share, draws);
    mix.share = 1 - static_cast<double>(mix.box.height) * mix.box.width / (static_cast<double>(size.height) * size.width);
    return mix;
  }

  void produce(const Chains& chains, const EpochKey& key, bool training, std::size_t array, std::int64_t row,
               std::span<std::byte> bytes) const {
    const Use use{chains, key, training};
    ScratchLease scratch;
    if (!images_[array]) {
      produce_array(use, array, row, chains[array].steps.size(), *scratch);
      std::memcpy(bytes.data(), scratch->bytes.data(), bytes.size());
      return;
    }
    produce_image(use, array, row, chains[array].steps.size(), scratch->image);
    write_image(*images_[array], array, row, *scratch, reinterpret_cast<std::uint8_t*>(bytes.data()));
  }

  struct Use {
    const Chains& chains;
    const EpochKey& key;
    bool training;
  };

  void read_raw(const Use& use, std::size_t array, std::int64_t row, std::vector<std::byte>& bytes) const {
    bytes.resize(static_cast<std::size_t>(raw_[array].second.bytes()));
    if (use.training) source_->fetch_in(use.key, array, row, bytes);
    else source_->fetch(array, row, bytes);
  }

  /// What goes wrong with a row's numbers is said with its place; the errors of sources have it already.
  template <class Work>
  void naming_row(std::int64_t row, Work work) const {
    try {
      work();
    } catch (const UserError& error) { throw UserError(concat(where(row), ": ", error.what()), error.code()); }
  }

  void begin_image(const Use& use, std::size_t array, std::int64_t row, ImageInHand& image) const {
    const ImageArray& shape = *images_[array];
    if (shape.of_own_size) return image.begin(*source_->images(array), row, shape.result.channels);
    ScratchLease raw;
    read_raw(use, array, row, raw->bytes);
    const auto channels = static_cast<std::size_t>(shape.row.channels);
    const auto* from = reinterpret_cast<const std::uint8_t*>(raw->bytes.data());
    image.begin(shape.row.height, shape.row.width, shape.row.channels);
    Image& pixels = image.pixels();
    if (shape.from == ImageLayout::chw) from_planes(from, pixels.pixels.size() / channels, channels, pixels.pixels.data());
    else std::memcpy(pixels.pixels.data(), from, pixels.pixels.size());
  }

  /// The first `steps` of an image's chain.
  void produce_image(const Use& use, std::size_t array, std::int64_t row, std::size_t steps, ImageInHand& image) const {
    begin_image(use, array, row, image);
    for (std::size_t i = 0; i < steps; ++i) {
      const Step& step = use.chains[array].steps[i];
      if (step.mixes) {
        mix_images(use, array, row, i, image);
        continue;
      }
      Draws draws(use.key, row, step.position);
      try {
        step.image->apply(image, draws);
      } catch (const UnfitImage& error) { throw UserError(concat(where(row), ": ", error.what())); }
    }
  }

  void mix_images(const Use& use, std::size_t array, std::int64_t row, std::size_t step, ImageInHand& image) const {
    const Mix mix = mix_of(use.chains[array].steps[step], use.key, row);
    if (!mix.happens) return;
    ScratchLease other;
    produce_image(use, array, mix.partner, step, other->image);
    Image& mine = image.pixels();
    const Image& theirs = other->image.pixels();
    check_internal(mine.pixels.size() == theirs.pixels.size(), "images to be mixed differ in size");
    if (!use.chains[array].steps[step].mix.boxes) {
      const auto share = static_cast<float>(mix.share), rest = 1 - share;
      for (std::size_t i = 0; i < mine.pixels.size(); ++i)
        mine.pixels[i] = static_cast<std::uint8_t>(
            std::nearbyint(share * static_cast<float>(mine.pixels[i]) + rest * static_cast<float>(theirs.pixels[i])));
      return;
    }
    const auto channels = static_cast<std::size_t>(mine.channels), line = static_cast<std::size_t>(mine.width) * channels;
    for (int y = mix.box.top; y < mix.box.top + mix.box.height; ++y) {
      const std::size_t begin = static_cast<std::size_t>(y) * line + static_cast<std::size_t>(mix.box.left) * channels;
      std::memcpy(mine.pixels.data() + begin, theirs.pixels.data() + begin, static_cast<std::size_t>(mix.box.width) * channels);
    }
  }

  void write_image(const ImageArray& shape, std::size_t array, std::int64_t row, Scratch& scratch, std::uint8_t* to) const {
    if (scratch.image.pixels().channels != shape.result.channels) {
      convert_channels(scratch.image.pixels(), shape.result.channels, scratch.image.spare());
      scratch.image.take_spare();
    }
    const Image& image = scratch.image.pixels();
    check_user(image.height == shape.result.height && image.width == shape.result.width, where(row), ": '", raw_[array].first,
               "' is ", image.height, " x ", image.width, ", wanted ", shape.result.height, " x ", shape.result.width);
    const auto channels = static_cast<std::size_t>(image.channels);
    if (channels > 1 && (shape.to == ImageLayout::chw || shape.to == ImageLayout::flat))
      to_planes(image.pixels.data(), image.pixels.size() / channels, channels, to);
    else std::memcpy(to, image.pixels.data(), image.pixels.size());
  }

  /// The first `steps` of an array's chain, into scratch.bytes.
  void produce_array(const Use& use, std::size_t array, std::int64_t row, std::size_t steps, Scratch& scratch) const {
    read_raw(use, array, row, scratch.bytes);
    for (std::size_t i = 0; i < steps; ++i) {
      const Step& step = use.chains[array].steps[i];
      if (step.mixes) {
        mix_arrays(use, array, row, i, scratch);
        continue;
      }
      scratch.spare.resize(static_cast<std::size_t>(step.array->result().bytes()));
      Draws draws(use.key, row, step.position);
      naming_row(row, [&] { step.array->apply(scratch.bytes, scratch.spare, draws); });
      scratch.bytes.swap(scratch.spare);
    }
  }

  const TensorType& type_before(const Use& use, std::size_t array, std::size_t step) const {
    for (; step > 0; --step)
      if (const auto& transform = use.chains[array].steps[step - 1].array) return transform->result();
    return raw_[array].second;
  }

  void mix_arrays(const Use& use, std::size_t array, std::int64_t row, std::size_t step, Scratch& scratch) const {
    const Mix mix = mix_of(use.chains[array].steps[step], use.key, row);
    if (!mix.happens) return;
    ScratchLease other;
    produce_array(use, array, mix.partner, step, *other);
    const auto share = static_cast<float>(mix.share), rest = 1 - share;
    if (type_before(use, array, step).dtype == DType::u8) {
      for (std::size_t i = 0; i < scratch.bytes.size(); ++i)
        scratch.bytes[i] = static_cast<std::byte>(static_cast<int>(
            std::nearbyint(share * static_cast<float>(scratch.bytes[i]) + rest * static_cast<float>(other->bytes[i]))));
      return;
    }
    for (std::size_t at = 0; at < scratch.bytes.size(); at += sizeof(float)) {
      float mine = 0, theirs = 0;
      std::memcpy(&mine, scratch.bytes.data() + at, sizeof mine);
      std::memcpy(&theirs, other->bytes.data() + at, sizeof theirs);
      mine = share * mine + rest * theirs;
      std::memcpy(scratch.bytes.data() + at, &mine, sizeof mine);
    }
  }

  std::unique_ptr<Source> source_;
  TransformSettings settings_;
  std::vector<NamedType> types_, raw_;  // raw_: the source's
  std::vector<std::optional<ImageArray>> images_;
  Chains training_, evaluation_;
};

}  // namespace

std::unique_ptr<Source> transformed(std::unique_ptr<Source> source, const TransformList& list, std::span<const WantedArray> wanted,
                                    TransformSettings settings) {
  return std::make_unique<Transformed>(std::move(source), list, wanted, std::move(settings));
}

}  // namespace gcomp::data
