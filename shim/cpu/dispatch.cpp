// Which kernel table runs: by what the processor reports, once per process.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "kernels.h"

namespace dspark::cpu {
namespace {

const Kernels* table(const std::string& name) {
#if defined(__x86_64__)
  if (name == "avx512") {
    const bool runs = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vnni");
    return runs ? &avx512_kernels() : nullptr;
  }
  if (name == "avx2") {
    const bool runs =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    return runs ? &avx2_kernels() : nullptr;
  }
#elif defined(__aarch64__)
  if (name == "neon") {
    return &neon_kernels();
  }
#endif
  return name == "portable" ? &portable_kernels() : nullptr;
}

const Kernels& choose() {
  const char* forced = std::getenv("MLX_DSPARK_ISA");
  if (forced != nullptr && *forced != '\0') {
    const Kernels* found = table(forced);
    if (found == nullptr) {
      throw std::invalid_argument(std::string("MLX_DSPARK_ISA=") + forced +
                                  ": unknown, or this processor does not run it; known are avx512, avx2, neon, portable");
    }
    return *found;
  }
  for (const char* name : {"avx512", "avx2", "neon"}) {
    if (const Kernels* found = table(name)) {
      return *found;
    }
  }
  return portable_kernels();
}

} // namespace

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

} // namespace dspark::cpu
