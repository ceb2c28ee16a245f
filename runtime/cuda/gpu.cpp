#include "runtime/cuda/gpu.h"

#include <cstdio>

#include "ir/base/units.h"

namespace gcomp::runtime::cuda {
namespace {

std::string uuid_text(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += "-";
    text += digits;
  }
  return text;
}

Gpu describe_device(const Driver& driver, int ordinal) {
  Gpu gpu;
  gpu.ordinal = ordinal;
  GCOMP_CUDA(driver, "", cuDeviceGet, &gpu.device, ordinal);
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    GCOMP_CUDA(driver, "", cuDeviceGetAttribute, &value, which, gpu.device);
    return value;
  };
  char name[256] = {};
  GCOMP_CUDA(driver, "", cuDeviceGetName, name, static_cast<int>(sizeof name) - 1, gpu.device);
  gpu.name = name;
  CUuuid uuid{};
  GCOMP_CUDA(driver, "", cuDeviceGetUuid_v2, &uuid, gpu.device);
  gpu.uuid = uuid_text(uuid);
  gpu.architecture =
      10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) + attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  gpu.multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  gpu.compute_mode = static_cast<CUcomputemode>(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE));
  gpu.shared_bytes = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  gpu.cache_bytes = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  std::size_t bytes = 0;
  GCOMP_CUDA(driver, "", cuDeviceTotalMem_v2, &bytes, gpu.device);
  gpu.memory_bytes = static_cast<std::int64_t>(bytes);
  return gpu;
}

}  // namespace

std::string architecture_name(int architecture) { return concat("sm_", architecture); }

std::string bytes_text(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return concat(decimal_text(value, 1), " ", kUnits[unit]);
}

std::string describe(const Gpu& gpu) {
  return concat(gpu.name, ", ", architecture_name(gpu.architecture), ", ", bytes_text(gpu.memory_bytes));
}

std::vector<Gpu> list_gpus(const Driver& driver) {
  int count = 0;
  GCOMP_CUDA(driver, "", cuDeviceGetCount, &count);
  std::vector<Gpu> gpus;
  for (int ordinal = 0; ordinal < count; ++ordinal) gpus.push_back(describe_device(driver, ordinal));
  return gpus;
}

std::string why_unfit(const Gpu& gpu) {
  if (gpu.architecture < kOldestArchitecture)
    return concat("it is ", architecture_name(gpu.architecture), ", and gcomp needs ", architecture_name(kOldestArchitecture),
                  " (Turing, 2018) or newer");
  if (gpu.compute_mode == CU_COMPUTEMODE_PROHIBITED)
    return "its compute mode is prohibited; allow work on it with nvidia-smi -c DEFAULT";
  return {};
}

Gpu choose_gpu(const Driver& driver, int ordinal, const char* visible_devices) {
  const std::vector<Gpu> gpus = list_gpus(driver);
  if (gpus.empty()) throw DeviceError(concat("the CUDA driver sees no GPU; ", cure_of(CUDA_ERROR_NO_DEVICE, visible_devices)));
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= gpus.size()) {
    std::string list;
    for (const Gpu& gpu : gpus) list += concat(list.empty() ? "" : "; ", "cuda:", gpu.ordinal, " is ", describe(gpu));
    throw DeviceError(concat("there is no GPU cuda:", ordinal, ": ", list));
  }
  const Gpu& gpu = gpus[static_cast<std::size_t>(ordinal)];
  if (const std::string reason = why_unfit(gpu); !reason.empty())
    throw DeviceError(concat("GPU cuda:", ordinal, " (", describe(gpu), ") cannot be used: ", reason));
  return gpu;
}

}  // namespace gcomp::runtime::cuda
