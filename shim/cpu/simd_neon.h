// simd.h on Arm's Advanced SIMD (every AArch64): four registers for sixteen lanes; products by smlal.
#pragma once

#include <arm_neon.h>

namespace dspark::cpu {
namespace {

struct Vi {
  int32x4_t v[4];
};
struct Vf {
  float32x4_t v[4];
};

template <class R, class F>
DSPARK_INLINE R each(F&& f) {
  return R{{f(0), f(1), f(2), f(3)}};
}

DSPARK_INLINE Vi load_int(const void* p) {
  return each<Vi>([&](int i) { return vld1q_s32(static_cast<const int32_t*>(p) + 4 * i); });
}
DSPARK_INLINE void store_int(void* p, Vi a) {
  for (int i = 0; i < 4; i++) {
    vst1q_s32(static_cast<int32_t*>(p) + 4 * i, a.v[i]);
  }
}
DSPARK_INLINE Vi splat_int(int32_t a) {
  return each<Vi>([&](int) { return vdupq_n_s32(a); });
}
DSPARK_INLINE Vi add(Vi a, Vi b) {
  return each<Vi>([&](int i) { return vaddq_s32(a.v[i], b.v[i]); });
}
DSPARK_INLINE Vi sub(Vi a, Vi b) {
  return each<Vi>([&](int i) { return vsubq_s32(a.v[i], b.v[i]); });
}
DSPARK_INLINE Vi bit_and(Vi a, Vi b) {
  return each<Vi>([&](int i) { return vandq_s32(a.v[i], b.v[i]); });
}
DSPARK_INLINE Vi max(Vi a, Vi b) {
  return each<Vi>([&](int i) { return vmaxq_s32(a.v[i], b.v[i]); });
}
template <int n>
DSPARK_INLINE Vi shift_right(Vi a) {
  if constexpr (n == 0) {
    return a;
  } else {
    return each<Vi>([&](int i) { return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a.v[i]), n)); });
  }
}
template <int n>
DSPARK_INLINE Vi shift_left(Vi a) {
  return each<Vi>([&](int i) { return vshlq_n_s32(a.v[i], n); });
}
DSPARK_INLINE Vi dot16(Vi sum, Vi w, int32_t x) {
  const int16_t low = static_cast<int16_t>(x);
  const int16_t high = static_cast<int16_t>(x >> 16);
  for (int i = 0; i < 4; i += 2) {
    const int16x8_t a = vreinterpretq_s16_s32(w.v[i]);
    const int16x8_t b = vreinterpretq_s16_s32(w.v[i + 1]);
    const int16x8_t even = vuzp1q_s16(a, b);
    const int16x8_t odd = vuzp2q_s16(a, b);
    sum.v[i] = vmlal_n_s16(sum.v[i], vget_low_s16(even), low);
    sum.v[i + 1] = vmlal_high_n_s16(sum.v[i + 1], even, low);
    sum.v[i] = vmlal_n_s16(sum.v[i], vget_low_s16(odd), high);
    sum.v[i + 1] = vmlal_high_n_s16(sum.v[i + 1], odd, high);
  }
  return sum;
}
DSPARK_INLINE void store_low_halves(int16_t* p, Vi a) {
  for (int i = 0; i < 4; i++) {
    vst1_s16(p + 4 * i, vmovn_s32(a.v[i]));
  }
}

DSPARK_INLINE Vf load(const float* p) {
  return each<Vf>([&](int i) { return vld1q_f32(p + 4 * i); });
}
DSPARK_INLINE void store(float* p, Vf a) {
  for (int i = 0; i < 4; i++) {
    vst1q_f32(p + 4 * i, a.v[i]);
  }
}
DSPARK_INLINE Vf splat(float a) {
  return each<Vf>([&](int) { return vdupq_n_f32(a); });
}
DSPARK_INLINE Vf fma(Vf a, Vf b, Vf c) {
  return each<Vf>([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
}
DSPARK_INLINE Vf mul(Vf a, Vf b) {
  return each<Vf>([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
}
DSPARK_INLINE Vf add(Vf a, Vf b) {
  return each<Vf>([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
}
DSPARK_INLINE Vf sub(Vf a, Vf b) {
  return each<Vf>([&](int i) { return vsubq_f32(a.v[i], b.v[i]); });
}
DSPARK_INLINE Vf div(Vf a, Vf b) {
  return each<Vf>([&](int i) { return vdivq_f32(a.v[i], b.v[i]); });
}
// Arm's own maximum treats a NaN otherwise than simd.h promises.
DSPARK_INLINE Vf max(Vf a, Vf b) {
  return each<Vf>([&](int i) { return vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
}
DSPARK_INLINE Vf min(Vf a, Vf b) {
  return each<Vf>([&](int i) { return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
}
DSPARK_INLINE Vf round_even(Vf a) {
  return each<Vf>([&](int i) { return vrndnq_f32(a.v[i]); });
}
DSPARK_INLINE Vi to_int(Vf a) {
  return each<Vi>([&](int i) { return vcvtnq_s32_f32(a.v[i]); });
}
DSPARK_INLINE Vf to_float(Vi a) {
  return each<Vf>([&](int i) { return vcvtq_f32_s32(a.v[i]); });
}
DSPARK_INLINE Vf as_float(Vi a) {
  return each<Vf>([&](int i) { return vreinterpretq_f32_s32(a.v[i]); });
}
DSPARK_INLINE Vi as_int(Vf a) {
  return each<Vi>([&](int i) { return vreinterpretq_s32_f32(a.v[i]); });
}
DSPARK_INLINE Vf load_half(const uint16_t* p) {
  return each<Vf>([&](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); });
}
DSPARK_INLINE void store_half(uint16_t* p, Vf a) {
  for (int i = 0; i < 4; i++) {
    vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.v[i])));
  }
}
DSPARK_INLINE Vf load_bfloat(const uint16_t* p) {
  return each<Vf>([&](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)); });
}
DSPARK_INLINE Vi load_bytes(const uint8_t* p) {
  const uint8x16_t bytes = vld1q_u8(p);
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes));
  const uint16x8_t high = vmovl_u8(vget_high_u8(bytes));
  return {{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))), vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(low))),
           vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
           vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(high)))}};
}

} // namespace
} // namespace dspark::cpu
