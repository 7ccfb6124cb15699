// simd.h on AVX-512 with BW, VL, DQ and VNNI.
#pragma once

#include <immintrin.h>

namespace dspark::cpu {
namespace {

typedef __m512i Vi;
typedef __m512 Vf;

DSPARK_INLINE Vi load_int(const void* p) { return _mm512_loadu_si512(p); }
DSPARK_INLINE void store_int(void* p, Vi a) { _mm512_storeu_si512(p, a); }
DSPARK_INLINE Vi splat_int(int32_t a) { return _mm512_set1_epi32(a); }
DSPARK_INLINE Vi add(Vi a, Vi b) { return _mm512_add_epi32(a, b); }
DSPARK_INLINE Vi sub(Vi a, Vi b) { return _mm512_sub_epi32(a, b); }
DSPARK_INLINE Vi bit_and(Vi a, Vi b) { return _mm512_and_si512(a, b); }
DSPARK_INLINE Vi max(Vi a, Vi b) { return _mm512_max_epi32(a, b); }
template <int n>
DSPARK_INLINE Vi shift_right(Vi a) {
  if constexpr (n == 0) {
    return a;
  } else {
    return _mm512_srli_epi32(a, n);
  }
}
template <int n>
DSPARK_INLINE Vi shift_left(Vi a) { return _mm512_slli_epi32(a, n); }
DSPARK_INLINE Vi dot16(Vi sum, Vi w, int32_t x) { return _mm512_dpwssd_epi32(sum, w, _mm512_set1_epi32(x)); }
DSPARK_INLINE void store_low_halves(int16_t* p, Vi a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a));
}

DSPARK_INLINE Vf load(const float* p) { return _mm512_loadu_ps(p); }
DSPARK_INLINE void store(float* p, Vf a) { _mm512_storeu_ps(p, a); }
DSPARK_INLINE Vf splat(float a) { return _mm512_set1_ps(a); }
DSPARK_INLINE Vf fma(Vf a, Vf b, Vf c) { return _mm512_fmadd_ps(a, b, c); }
DSPARK_INLINE Vf mul(Vf a, Vf b) { return _mm512_mul_ps(a, b); }
DSPARK_INLINE Vf add(Vf a, Vf b) { return _mm512_add_ps(a, b); }
DSPARK_INLINE Vf sub(Vf a, Vf b) { return _mm512_sub_ps(a, b); }
DSPARK_INLINE Vf div(Vf a, Vf b) { return _mm512_div_ps(a, b); }
DSPARK_INLINE Vf max(Vf a, Vf b) { return _mm512_max_ps(a, b); }
DSPARK_INLINE Vf min(Vf a, Vf b) { return _mm512_min_ps(a, b); }
DSPARK_INLINE Vf round_even(Vf a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
DSPARK_INLINE Vi to_int(Vf a) { return _mm512_cvtps_epi32(a); }
DSPARK_INLINE Vf to_float(Vi a) { return _mm512_cvtepi32_ps(a); }
DSPARK_INLINE Vf as_float(Vi a) { return _mm512_castsi512_ps(a); }
DSPARK_INLINE Vi as_int(Vf a) { return _mm512_castps_si512(a); }
DSPARK_INLINE Vf load_half(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
DSPARK_INLINE void store_half(uint16_t* p, Vf a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
DSPARK_INLINE Vf load_bfloat(const uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
DSPARK_INLINE Vi load_bytes(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

} // namespace
} // namespace dspark::cpu
