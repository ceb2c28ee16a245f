#include "runtime/library_search.h"

#include <filesystem>

namespace gcomp::runtime {

namespace fs = std::filesystem;

LibrarySearch search_by_variables(const std::function<const char*(const char*)>& variable) {
  const auto path = [&](const char* name) {
    const char* value = variable(name);
    return std::string(value ? value : "");
  };
  LibrarySearch search;
  search.cuda_home = path("CUDA_HOME");
  if (search.cuda_home.empty()) search.cuda_home = path("CUDA_PATH");
  search.conda_prefix = path("CONDA_PREFIX");
  if (std::string environment = path("VIRTUAL_ENV"); !environment.empty()) search.python_prefixes.push_back(std::move(environment));
  if (const fs::path home = path("HOME"); !home.empty()) search.python_prefixes.push_back(home / ".local");
  return search;
}

}  // namespace gcomp::runtime
