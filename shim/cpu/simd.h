// Sixteen lanes of float32 or int32 on each instruction set, with the same operations and, to the bit, the same results.
// A kernel file (kernels_*.cpp) chooses one body by DSPARK_SIMD. What the bodies promise:
//   max(a, b) is a > b ? a : b and min(a, b) is a < b ? a : b, so a NaN in b passes and one in a is dropped;
//   fma rounds once; to_int rounds to nearest, ties to even, for |x| < 2^22; dot16 adds, in each lane, the products of
//   the signed 16-bit halves of two words.
#pragma once

#include <cstdint>
#include <cstring>

#define DSPARK_PORTABLE 0
#define DSPARK_AVX2 2
#define DSPARK_AVX512 3
#define DSPARK_NEON 4
#define DSPARK_INLINE inline __attribute__((always_inline))

#if DSPARK_SIMD == DSPARK_AVX512
#include "simd_avx512.h"
#elif DSPARK_SIMD == DSPARK_AVX2
#include "simd_avx2.h"
#elif DSPARK_SIMD == DSPARK_NEON
#include "simd_neon.h"
#else
#include "simd_portable.h"
#endif

namespace dspark::cpu {
namespace {

// The first n lanes; the others are zero.
DSPARK_INLINE Vf load_first(const float* p, int n) {
  alignas(64) float lanes[16] = {};
  std::memcpy(lanes, p, sizeof(float) * n);
  return load(lanes);
}
DSPARK_INLINE void store_first(float* p, Vf a, int n) {
  alignas(64) float lanes[16];
  store(lanes, a);
  std::memcpy(p, lanes, sizeof(float) * n);
}

// The unsigned four-bit halves of sixteen bytes.
DSPARK_INLINE Vi load_nibbles(const uint8_t* p, bool high) {
  const Vi bytes = load_bytes(p);
  return high ? shift_right<4>(bytes) : bit_and(bytes, splat_int(15));
}

// Fixed tree: lane l with l+8, then 4, 2, 1.
DSPARK_INLINE float sum_lanes(Vf a) {
  alignas(64) float lanes[16];
  store(lanes, a);
  for (int d = 8; d > 0; d /= 2) {
    for (int i = 0; i < d; i++) {
      lanes[i] = lanes[i] + lanes[i + d];
    }
  }
  return lanes[0];
}
DSPARK_INLINE float max_lanes(Vf a) {
  alignas(64) float lanes[16];
  store(lanes, a);
  float best = lanes[0];
  for (int i = 1; i < 16; i++) {
    best = lanes[i] > best ? lanes[i] : best;
  }
  return best;
}

// e^x by Cephes' polynomial; relative error below 2e-7 on [-87, 88], clamped outside; a NaN stays one.
DSPARK_INLINE Vf exponential(Vf x) {
  x = min(splat(88.f), max(splat(-87.f), x));
  const Vf n = round_even(mul(x, splat(1.44269504088896341f)));
  Vf r = fma(n, splat(-0.693359375f), x);
  r = fma(n, splat(2.12194440e-4f), r);
  Vf p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(mul(r, r), p, add(r, splat(1.f)));
  return mul(p, as_float(shift_left<23>(add(to_int(n), splat_int(127)))));
}

// 1 − 2/(e^2x + 1)
DSPARK_INLINE Vf hyperbolic_tangent(Vf x) {
  const Vf grown = exponential(add(x, x));
  return sub(splat(1.f), div(splat(2.f), add(grown, splat(1.f))));
}

} // namespace
} // namespace dspark::cpu
