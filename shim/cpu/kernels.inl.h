// The one kernel source, compiled once for each instruction set: DSPARK_SIMD chooses the lanes, DSPARK_TABLE names the
// table. Everything is in unnamed namespaces, so the copies do not meet at link time.
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels.h"
#include "simd.h"

#include "integer_matmul.inl.h"
#include "attention.inl.h"
#include "float_matmul.inl.h"
#include "pointwise.inl.h"
#include "quantize.inl.h"

namespace dspark::cpu {

const Kernels& DSPARK_TABLE() {
  static constexpr Kernels table{DSPARK_NAME,  quantize,      integer_matmul, float_matmul, rms_norm,
                                 silu_multiply, gelu_multiply, rotate,         attend,       narrow,
                                 argmax};
  return table;
}

} // namespace dspark::cpu
