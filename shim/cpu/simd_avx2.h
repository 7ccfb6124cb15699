// simd.h on AVX2 with FMA and F16C: two registers for sixteen lanes.
#pragma once

#include <immintrin.h>

namespace dspark::cpu {
namespace {

struct Vi {
  __m256i a, b;
};
struct Vf {
  __m256 a, b;
};

DSPARK_INLINE Vi load_int(const void* p) {
  const __m256i* q = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
DSPARK_INLINE void store_int(void* p, Vi x) {
  __m256i* q = static_cast<__m256i*>(p);
  _mm256_storeu_si256(q, x.a);
  _mm256_storeu_si256(q + 1, x.b);
}
DSPARK_INLINE Vi splat_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
DSPARK_INLINE Vi add(Vi x, Vi y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
DSPARK_INLINE Vi sub(Vi x, Vi y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
DSPARK_INLINE Vi bit_and(Vi x, Vi y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
DSPARK_INLINE Vi max(Vi x, Vi y) { return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)}; }
template <int n>
DSPARK_INLINE Vi shift_right(Vi x) {
  if constexpr (n == 0) {
    return x;
  } else {
    return {_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)};
  }
}
template <int n>
DSPARK_INLINE Vi shift_left(Vi x) { return {_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)}; }
DSPARK_INLINE Vi dot16(Vi sum, Vi w, int32_t x) {
  const __m256i k = _mm256_set1_epi32(x);
  return {_mm256_add_epi32(sum.a, _mm256_madd_epi16(w.a, k)), _mm256_add_epi32(sum.b, _mm256_madd_epi16(w.b, k))};
}
DSPARK_INLINE void store_low_halves(int16_t* p, Vi x) {
  // The values fit 16 bits, so the saturation of the packing never acts.
  const __m256i packed = _mm256_packs_epi32(x.a, x.b);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}

DSPARK_INLINE Vf load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
DSPARK_INLINE void store(float* p, Vf x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
DSPARK_INLINE Vf splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
DSPARK_INLINE Vf fma(Vf x, Vf y, Vf z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
DSPARK_INLINE Vf mul(Vf x, Vf y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
DSPARK_INLINE Vf add(Vf x, Vf y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
DSPARK_INLINE Vf sub(Vf x, Vf y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
DSPARK_INLINE Vf div(Vf x, Vf y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
DSPARK_INLINE Vf max(Vf x, Vf y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
DSPARK_INLINE Vf min(Vf x, Vf y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
DSPARK_INLINE Vf round_even(Vf x) { return {_mm256_round_ps(x.a, 8), _mm256_round_ps(x.b, 8)}; }
DSPARK_INLINE Vi to_int(Vf x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
DSPARK_INLINE Vf to_float(Vi x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
DSPARK_INLINE Vf as_float(Vi x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
DSPARK_INLINE Vi as_int(Vf x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
DSPARK_INLINE Vf load_half(const uint16_t* p) {
  const __m128i* q = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
DSPARK_INLINE void store_half(uint16_t* p, Vf x) {
  __m128i* q = reinterpret_cast<__m128i*>(p);
  _mm_storeu_si128(q, _mm256_cvtps_ph(x.a, 0));
  _mm_storeu_si128(q + 1, _mm256_cvtps_ph(x.b, 0));
}
DSPARK_INLINE Vf load_bfloat(const uint16_t* p) {
  const __m128i* q = reinterpret_cast<const __m128i*>(p);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(q)), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(q + 1)), 16))};
}
DSPARK_INLINE Vi load_bytes(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}

} // namespace
} // namespace dspark::cpu
