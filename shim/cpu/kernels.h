// The kernels of one instruction set as a table. All tables give the same bits; which one runs is a matter of speed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "matrix.h"

namespace dspark::cpu {

// Rows of activations as integers, one scale for each row and group ("A16"): q = rne(x · 32767/amax), scale = amax/32767.
// A group whose amax is below 2^-110 counts as zero; one with an infinity or NaN gets a NaN scale, which poisons the
// outputs of its row and of no other.
struct Activations {
  int rows = 0;
  int columns = 0;
  int group = 0;
  int16_t* q = nullptr; // [rows][columns]
  float* scale = nullptr; // [rows][groups]
  float* scaled_sum = nullptr; // [rows][groups]: scale · float(Σq)
  int32_t* sum = nullptr; // [rows][groups]: Σq
};

enum class KvFormat : uint8_t { f32, f16, q8, q4 };

constexpr bool is_quantized(KvFormat format) {
  return format == KvFormat::q8 || format == KvFormat::q4;
}

// Keys and values of one head in one chunk of a sequence (kv_store.h).
struct KvSpan {
  // [16-key block][dim][16]; q4: [block][dim/2][16], the even feature in a byte's low half.
  const void* keys;
  // [key][padded dim]; q4: [key][dim/2], of 32 features the first sixteen in the low halves of sixteen bytes.
  const void* values;
  // Quantized: scale and bias of each key and group of features; value = fma(scale, code, bias).
  const float* key_parameters; // [block][group][2][16]
  const float* value_parameters; // [key][group][2]
};

constexpr int kChunkKeys = 256;
constexpr int kQueriesMax = 4;

// Up to kQueriesMax queries of one kv head against one chunk. Query t sees the chunk's keys [first[t], last[t]); its
// running softmax (maximum, total, weighted values) is merged with the chunk's own.
struct AttentionTile {
  int queries;
  int dim;
  int padded; // dim rounded up to lanes
  int group; // quantized: features that share a scale
  KvFormat format;
  float soft_cap; // 0: none
  const float* const* q; // scaled; [padded], zero behind dim
  const int* first;
  const int* last;
  KvSpan span;
  float* maximum;
  float* total;
  float* const* values; // [padded]
};

struct Kernels {
  const char* name;
  void (*quantize)(const float* x, int columns, int group, int16_t* q, float* scale, float* scaled_sum, int32_t* sum);
  // y[m][n] for the outputs of blocks [first, last); `stride` is between rows of y.
  void (*integer_matmul)(const Matrix& w, const Activations& x, int first, int last, float* y, size_t stride);
  void (*float_matmul)(const Matrix& w, const float* x, size_t x_stride, int rows, int first, int last, float* y,
                       size_t stride);
  // x / sqrt(mean(x²) + eps) · weight
  void (*rms_norm)(const float* x, const float* weight, float* y, int n, float eps);
  // act(gate) · up
  void (*silu_multiply)(const float* gate, const float* up, float* y, int n);
  void (*gelu_multiply)(const float* gate, const float* up, float* y, int n);
  // Rotates the first 2·half of x in place; pairs (j, j + half), or (2j, 2j+1) when `interleaved`.
  void (*rotate)(float* x, const float* cos, const float* sin, int half, bool interleaved);
  void (*attend)(const AttentionTile& tile);
  // Rounds to float16.
  void (*narrow)(const float* x, uint16_t* y, int n);
  // Place of the first largest; 0 when x[0] is a NaN, others count for nothing.
  int (*argmax)(const float* x, int n);
};

const Kernels& portable_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& neon_kernels();

// The fastest table that this machine runs, or the one that MLX_DSPARK_ISA names (avx512, avx2, neon, portable).
// Throws std::invalid_argument when that one is unknown or cannot run here.
const Kernels& kernels();

} // namespace dspark::cpu
