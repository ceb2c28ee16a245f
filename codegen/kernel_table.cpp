#include "codegen/kernel_table.h"

#include <cstdio>

#include "ir/base/error.h"
#include "ir/base/hash.h"

namespace gcomp::codegen {
namespace {

std::string named(std::string text, const std::string& name) {
  const std::size_t at = text.find(kNamePlaceholder);
  check_internal(at != text.npos, "an emitted kernel lacks its name");
  return text.replace(at, sizeof kNamePlaceholder - 1, name);
}

/// Nests that start reading at different places are equal but for the sizes of what they read.
std::size_t hash_of(const ir::LoopNest& nest, const std::vector<TensorType>& types) {
  std::size_t seed = ir::hash_of(nest);
  for (const TensorType& type : types) {
    seed = hash_combine(seed, static_cast<std::size_t>(type.dtype));
    for (std::int64_t dim : type.shape) seed = hash_combine(seed, static_cast<std::size_t>(dim));
  }
  return seed;
}

}  // namespace

std::string KernelTable::prelude() const { return target_.prelude(); }

KernelTable::Entry KernelTable::add(const KernelSource& source) {
  std::vector<TensorType> types(source.operands.begin(), source.operands.end());
  types.insert(types.end(), source.results.begin(), source.results.end());
  const std::size_t hash = hash_of(source.nest, types);
  const auto [begin, end] = known_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const Known& known = it->second;
    if (known.nest == source.nest && known.types == types && known.segments == source.segments)
      return {known.kernel, known.emitted.get()};
  }
  Known known{source.nest, std::move(types), source.segments, 0, std::make_unique<EmittedKernel>(target_.emit(source))};
  known.kernel = add_text(known.emitted->text);
  KernelWork work = known.emitted->work;
  work.blocks = static_cast<double>(known.emitted->grid.blocks);
  works_.emplace(known.kernel, work);
  const Entry entry{known.kernel, known.emitted.get()};
  known_.emplace(hash, std::move(known));
  return entry;
}

int KernelTable::add_text(const std::string& text) {
  const auto [found, is_new] = by_text_.try_emplace(text, static_cast<int>(kernels_.size()));
  if (is_new) {
    const std::string name = name_for(text);
    kernels_.push_back({name, named(text, name)});
    bytes_ += static_cast<std::int64_t>(kernels_.back().text.size());
  }
  return found->second;
}

const KernelWork* KernelTable::work_of(int kernel) const {
  const auto found = works_.find(kernel);
  return found == works_.end() ? nullptr : &found->second;
}

/// "k" and 40 bits of a hash; of more hashes where two texts of a program share one.
std::string KernelTable::name_for(const std::string& text) {
  char name[12];
  std::uint64_t hash = 0;
  do {
    hash = fnv1a(text, ~hash);
    std::snprintf(name, sizeof name, "k%010llx", static_cast<unsigned long long>(hash >> 24));
  } while (!names_.insert(name).second);
  return name;
}

}  // namespace gcomp::codegen
