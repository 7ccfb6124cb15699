// Products of rows with packed matrices, alone and with what surrounds them in a layer. Rows go in batches of kRowBatch,
// so that scratch is bounded; threads share columns, never a sum.
#pragma once

#include <array>

#include "kernels.h"
#include "pool.h"

namespace dspark::cpu {

// Rows of floats with a distance between them.
struct Rows {
  const float* data;
  size_t stride;
  int count;

  const float* row(int index) const {
    return data + index * stride;
  }
  Rows part(int from, int n) const {
    return {data + from * stride, stride, n};
  }
};

struct Norm {
  const float* weight;
  float eps;
};

enum class Activation : uint8_t { silu, gelu_tanh };

// Matrices with the same input whose outputs stand side by side; null ends the list.
using MatrixList = std::array<const Matrix*, 3>;

struct Context {
  const Kernels& kernels;
  Pool& pool;
};

// y [rows, Σ matrix rows] = norm(x) · [m0 | m1 | m2]ᵀ + biases; `norm` null: x as it is.
void multiply(const Context& context, const Rows& x, const Norm* norm, const MatrixList& matrices, float* y);

// y = residual + (x · mᵀ + bias)
void multiply_add(const Context& context, const Rows& x, const Matrix& matrix, const Rows& residual, float* y);

// y = act(norm(x) · gateᵀ) · (norm(x) · upᵀ)
void gated_unit(const Context& context, const Rows& x, const Norm& norm, const Matrix& gate, const Matrix& up,
                Activation activation, float* y);

} // namespace dspark::cpu
