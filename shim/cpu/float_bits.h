// Scalar conversions between float32 and the two-byte floats, by bits: the same result on every machine.
#pragma once

#include <bit>
#include <cstdint>

namespace dspark::cpu {

inline float half_to_float(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t exponent = half >> 10 & 31;
  const uint32_t fraction = half & 1023;
  if (exponent == 0) {
    // A subnormal is fraction · 2^-24, which float32 holds exactly.
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t wide = exponent == 31 ? 0x7f800000u : (exponent + 112) << 23;
  const uint32_t quiet = exponent == 31 && fraction != 0 ? 0x400000u : 0;
  return std::bit_cast<float>(sign | wide | quiet | fraction << 13);
}

// To nearest, ties to even, as the conversion instructions do.
inline uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) {
    return static_cast<uint16_t>(sign | 0x7c00u);
  }
  if (magnitude < 0x38800000u) {
    // Below the normal halves the sum with 0.5 rounds at 2^-24, which is where the half ends.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | (rounded - 0x38000000u) >> 13);
}

inline float bfloat_to_float(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

// For values that a bfloat16 holds exactly.
inline uint16_t exact_bfloat(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}

} // namespace dspark::cpu
