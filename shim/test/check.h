// The least that the native tests need: named checks, a running hash of results, numbers that are the same everywhere.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels.h"

namespace dspark::test {

inline int failures = 0;
inline int checks = 0;

inline void check(bool holds, const std::string& what) {
  checks++;
  if (!holds) {
    failures++;
    std::printf("FAILED: %s\n", what.c_str());
  }
}

inline int report(const char* name) {
  std::printf("%s: %d checks, %d failed\n", name, checks, failures);
  return failures == 0 ? 0 : 1;
}

// FNV over the bits of floats; every NaN counts as one, since processors make different ones.
class Hash {
 public:
  void add(const std::vector<float>& values) {
    for (const float value : values) {
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      value_ = (value_ ^ (std::isnan(value) ? 0x7fc00000u : bits)) * 1099511628211ull;
    }
  }
  uint64_t value() const {
    return value_;
  }

 private:
  uint64_t value_ = 1469598103934665603ull;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// About normal, with deviation near 1.15, by integer arithmetic: no libm.
inline float bell(std::mt19937& random) {
  int sum = 0;
  for (int i = 0; i < 4; i++) {
    sum += static_cast<int>(random() % 2001) - 1000;
  }
  return static_cast<float>(sum) * 1e-3f;
}

inline std::vector<float> bells(std::mt19937& random, size_t count, float scale = 1) {
  std::vector<float> values(count);
  for (float& value : values) {
    value = bell(random) * scale;
  }
  return values;
}

// The tables that this machine runs.
inline std::vector<const cpu::Kernels*> tables() {
  std::vector<const cpu::Kernels*> found{&cpu::portable_kernels()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    found.push_back(&cpu::avx2_kernels());
  }
  if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    found.push_back(&cpu::avx512_kernels());
  }
#elif defined(__aarch64__)
  found.push_back(&cpu::neon_kernels());
#endif
  return found;
}

} // namespace dspark::test
