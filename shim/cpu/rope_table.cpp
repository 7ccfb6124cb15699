// Cosines and sines without libm, whose last bits differ between systems: Cody–Waite reduction by π/2 in three parts
// (good to 2^-60 for angles below 10^6) and the minimax polynomials of fdlibm on [-π/4, π/4].
#include <cmath>

#include "self_attention.h"

namespace dspark::cpu {
namespace {

struct SineCosine {
  double sine;
  double cosine;
};

SineCosine sine_cosine(double angle) {
  constexpr double kTwoOverPi = 0.63661977236758134308;
  constexpr double kHalfPi1 = 1.57079632673412561417e+00; // 33 bits
  constexpr double kHalfPi2 = 6.07710050630396597660e-11; // the next 33
  constexpr double kHalfPi3 = 2.02226624879595063154e-21; // the rest
  const double quarter = std::floor(angle * kTwoOverPi + 0.5);
  const double r = ((angle - quarter * kHalfPi1) - quarter * kHalfPi2) - quarter * kHalfPi3;
  const double z = r * r;
  const double sine =
      r + r * z * (-1.66666666666666324348e-01 +
                   z * (8.33333333332248946124e-03 +
                        z * (-1.98412698298579493134e-04 +
                             z * (2.75573137070700676789e-06 +
                                  z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)))));
  const double cosine =
      1.0 - 0.5 * z +
      z * z * (4.16666666666666019037e-02 +
               z * (-1.38888888888741095749e-03 +
                    z * (2.48015872894767294178e-05 +
                         z * (-2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)))));
  switch (static_cast<long long>(quarter) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

} // namespace

void rope_table(const int32_t* positions, int count, const double* inverse, int half, double magnitude, float* out) {
  for (int i = 0; i < count; i++, out += 2 * half) {
    for (int j = 0; j < half; j++) {
      const SineCosine value = sine_cosine(positions[i] * inverse[j]);
      out[j] = static_cast<float>(value.cosine * magnitude);
      out[half + j] = static_cast<float>(value.sine * magnitude);
    }
  }
}

} // namespace dspark::cpu
