// A weight matrix [rows, columns] as the kernels read it, made once at load.
//
// "R16": blocks of 16 rows (outputs), padded with zero rows. An integer block is a run of records, one for each group of
// columns: group·bits/32 vectors of 16 words (lane = row), then 16 scales, then (affine only) 16 biases, in the file's
// dtype. A word holds its elements in the order in which the dot step wants them: shifted right by s·bits and masked, its
// low half is element 2s and its high half element 2s+1, whatever the width; so activations keep their natural order.
// A float block is columns × 16 values in the file's dtype.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "buffer.h"
#include "pool.h"

namespace dspark::cpu {

constexpr int kLanes = 16;

enum class FloatType : uint8_t { f32, f16, bf16 };

inline size_t size_of(FloatType type) {
  return type == FloatType::f32 ? 4 : 2;
}

// affine: value = scale·q + bias, q unsigned. codes: value = scale·(q − zero). floats: the values themselves.
enum class Encoding : uint8_t { affine, codes, floats };

struct Matrix {
  Encoding encoding = Encoding::floats;
  FloatType type = FloatType::f32; // of the scales and biases, or of the values
  int rows = 0;
  int columns = 0;
  int bits = 0; // stored width: 2, 4 or 8
  int group = 0; // columns that share a scale
  int zero = 0;
  Buffer blob;
  std::vector<float> bias; // empty, or one for each row padded to whole blocks: added to each product

  int blocks() const {
    return (rows + kLanes - 1) / kLanes;
  }
  int groups() const {
    return columns / group;
  }
  size_t record_bytes() const {
    const size_t parameters = encoding == Encoding::affine ? 2 : 1;
    return size_t(group) * bits / 32 * 64 + parameters * kLanes * size_of(type);
  }
  size_t block_bytes() const {
    return encoding == Encoding::floats ? size_t(columns) * kLanes * size_of(type) : record_bytes() * groups();
  }
  const unsigned char* block(int index) const {
    return blob.data() + index * block_bytes();
  }
};

// What a checkpoint holds: MLX's packed matrix, or (scales null) a plain one.
struct Source {
  const void* weight = nullptr; // uint32 [rows, columns·bits/32] as little-endian bit streams, or floats [rows, columns]
  const void* scales = nullptr; // [rows, columns/group]: `type` for affine, else bytes
  const void* biases = nullptr; // as scales, affine only
  const float* bias = nullptr; // [rows] or null
  int rows = 0;
  int columns = 0;
  int group = 0;
  int bits = 0;
  std::string mode; // "affine", "mxfp4", "nvfp4", "mxfp8"
  FloatType type = FloatType::f32;
};

// Throws std::invalid_argument with what is not supported.
Matrix pack(const Source& source, Pool& pool);

// One row as floats [columns]: the embedding look-up from the packed form. fma(scale, q, bias) for affine.
void unpack_row(const Matrix& matrix, int row, float* out);

float to_float(const void* value, FloatType type);

} // namespace dspark::cpu
