// simd.h on compiler vectors: any machine, and the plainest statement of what the other bodies must equal.
#pragma once

#include "float_bits.h"

namespace dspark::cpu {
namespace {

typedef int32_t Vi __attribute__((vector_size(64)));
typedef uint32_t Vu __attribute__((vector_size(64)));
typedef float Vf __attribute__((vector_size(64)));

DSPARK_INLINE Vi load_int(const void* p) {
  Vi a;
  std::memcpy(&a, p, 64);
  return a;
}
DSPARK_INLINE void store_int(void* p, Vi a) { std::memcpy(p, &a, 64); }
DSPARK_INLINE Vi splat_int(int32_t a) { return Vi{} + a; }
DSPARK_INLINE Vi add(Vi a, Vi b) { return a + b; }
DSPARK_INLINE Vi sub(Vi a, Vi b) { return a - b; }
DSPARK_INLINE Vi bit_and(Vi a, Vi b) { return a & b; }
DSPARK_INLINE Vi max(Vi a, Vi b) { return a > b ? a : b; }
template <int n>
DSPARK_INLINE Vi shift_right(Vi a) { return (Vi)((Vu)a >> n); }
template <int n>
DSPARK_INLINE Vi shift_left(Vi a) { return (Vi)((Vu)a << n); }
DSPARK_INLINE Vi dot16(Vi sum, Vi w, int32_t x) {
  const int32_t low = static_cast<int16_t>(x);
  const int32_t high = x >> 16;
  return sum + ((Vi)((Vu)w << 16) >> 16) * low + (w >> 16) * high;
}
DSPARK_INLINE void store_low_halves(int16_t* p, Vi a) {
  for (int i = 0; i < 16; i++) {
    p[i] = static_cast<int16_t>(a[i]);
  }
}

DSPARK_INLINE Vf load(const float* p) {
  Vf a;
  std::memcpy(&a, p, 64);
  return a;
}
DSPARK_INLINE void store(float* p, Vf a) { std::memcpy(p, &a, 64); }
DSPARK_INLINE Vf splat(float a) {
  return Vf{a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a};
}
DSPARK_INLINE Vf fma(Vf a, Vf b, Vf c) {
  Vf r;
  for (int i = 0; i < 16; i++) {
    r[i] = __builtin_fmaf(a[i], b[i], c[i]);
  }
  return r;
}
DSPARK_INLINE Vf mul(Vf a, Vf b) { return a * b; }
DSPARK_INLINE Vf add(Vf a, Vf b) { return a + b; }
DSPARK_INLINE Vf sub(Vf a, Vf b) { return a - b; }
DSPARK_INLINE Vf div(Vf a, Vf b) { return a / b; }
DSPARK_INLINE Vf max(Vf a, Vf b) { return a > b ? a : b; }
DSPARK_INLINE Vf min(Vf a, Vf b) { return a < b ? a : b; }
DSPARK_INLINE Vi as_int(Vf a) { return (Vi)a; }
DSPARK_INLINE Vf as_float(Vi a) { return (Vf)a; }
DSPARK_INLINE Vf to_float(Vi a) { return __builtin_convertvector(a, Vf); }
// Adding 1.5·2^23 leaves the rounded integer in the low bits.
DSPARK_INLINE Vi to_int(Vf a) { return (Vi)(a + splat(12582912.f)) - splat_int(0x4b400000); }
DSPARK_INLINE Vf round_even(Vf a) { return (a + splat(12582912.f)) - splat(12582912.f); }
DSPARK_INLINE Vf load_half(const uint16_t* p) {
  Vf a;
  for (int i = 0; i < 16; i++) {
    a[i] = half_to_float(p[i]);
  }
  return a;
}
DSPARK_INLINE void store_half(uint16_t* p, Vf a) {
  for (int i = 0; i < 16; i++) {
    p[i] = float_to_half(a[i]);
  }
}
DSPARK_INLINE Vf load_bfloat(const uint16_t* p) {
  Vu bits;
  for (int i = 0; i < 16; i++) {
    bits[i] = static_cast<uint32_t>(p[i]) << 16;
  }
  return (Vf)bits;
}
DSPARK_INLINE Vi load_bytes(const uint8_t* p) {
  Vi a;
  for (int i = 0; i < 16; i++) {
    a[i] = p[i];
  }
  return a;
}

} // namespace
} // namespace dspark::cpu
