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

// y [rows, 16·blocks or the matrix's rows] = x · mᵀ + bias, of the first `blocks` blocks of outputs
void multiply_blocks(const Context& context, const Rows& x, const Matrix& matrix, int blocks, float* y);

// y = residual + (x · mᵀ + bias)
void multiply_add(const Context& context, const Rows& x, const Matrix& matrix, const Rows& residual, float* y);

// y = act(norm(x) · gateᵀ) · (norm(x) · upᵀ)
void gated_unit(const Context& context, const Rows& x, const Norm& norm, const Matrix& gate, const Matrix& up,
                Activation activation, float* y);

// For each row of `base` in turn: f = the row of `before` of the id ahead (`anchor`, then ids[i − 1]; 0 for one that it
// does not have), ids[i] = the first n < width with the largest base[i][n] + (f · afterᵀ)[n]. features [rows, rank]: f.
void greedy_walk(const Context& context, const Rows& base, int width, int32_t anchor, const Matrix& before,
                 const Matrix& after, uint32_t* ids, float* features);

} // namespace dspark::cpu
