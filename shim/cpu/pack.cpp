// From MLX's row-major packed matrices to R16 (matrix.h). Every format is carried over exactly: 3, 5 and 6 bits are widened
// to 4 or 8; the 4-bit floats become integers (twice the value, which is whole) with half the scale; the 8-bit floats
// times their power of two become bfloat16, since their integers would need 19 bits.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "float_bits.h"
#include "matrix.h"

namespace dspark::cpu {
namespace {

constexpr int kTwiceE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
constexpr int kE2M1Zero = 12;

// 2^(byte − 127); the byte 0 is 2^-127, a subnormal.
float e8m0(uint8_t byte) {
  return std::bit_cast<float>(byte == 0 ? 0x400000u : static_cast<uint32_t>(byte) << 23);
}

float e4m3(uint8_t byte) {
  const int exponent = byte >> 3 & 15;
  const int fraction = byte & 7;
  if ((byte & 0x7f) == 0x7f) {
    return std::bit_cast<float>(0x7fc00000u);
  }
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                        : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return byte & 0x80 ? -magnitude : magnitude;
}

uint32_t word_at(const void* words, size_t index) {
  uint32_t word;
  std::memcpy(&word, static_cast<const unsigned char*>(words) + index * 4, 4);
  return word;
}

// Element `index` of a row's little-endian bit stream.
uint32_t element(const void* words, size_t row_start, int index, int bits) {
  const size_t bit = size_t(index) * bits;
  const size_t word = row_start + bit / 32;
  const unsigned shift = bit % 32;
  uint64_t value = word_at(words, word);
  if (shift + bits > 32) {
    value |= static_cast<uint64_t>(word_at(words, word + 1)) << 32;
  }
  return static_cast<uint32_t>(value >> shift) & ((1u << bits) - 1);
}

// Where element `index` of a word stands: even ones in the low half, odd ones in the high half.
unsigned field_shift(int index, int bits) {
  return static_cast<unsigned>(index / 2 * bits + index % 2 * 16);
}

template <class Code>
void fill_record(unsigned char* record, const Matrix& to, int lane, Code&& code) {
  const int per_word = 32 / to.bits;
  for (int j = 0; j < to.group / per_word; j++) {
    uint32_t word = 0;
    for (int i = 0; i < per_word; i++) {
      word |= code(j * per_word + i) << field_shift(i, to.bits);
    }
    std::memcpy(record + (size_t(j) * kLanes + lane) * 4, &word, 4);
  }
}

void require(bool holds, const std::string& message) {
  if (!holds) {
    throw std::invalid_argument("pack: " + message);
  }
}

// Threads share blocks; within a record all its rows, so that a record is written while it is in the cache.
template <class Visit>
void each_record(Matrix& to, Pool& pool, Visit&& visit) {
  pool.run(to.blocks(), 4, [&](int first, int last) {
    for (int b = first; b < last; b++) {
      const int lanes = std::min(kLanes, to.rows - b * kLanes);
      for (int g = 0; g < to.groups(); g++) {
        unsigned char* record = to.blob.data() + b * to.block_bytes() + g * to.record_bytes();
        unsigned char* parameters = record + size_t(to.group) * to.bits / 32 * 64;
        for (int lane = 0; lane < lanes; lane++) {
          visit(b * kLanes + lane, g, lane, record, parameters);
        }
      }
    }
  });
}

template <class Visit>
void each_row(const Matrix& to, Pool& pool, Visit&& visit) {
  pool.run(to.blocks(), 4, [&](int first, int last) {
    for (int row = first * kLanes; row < std::min(last * kLanes, to.rows); row++) {
      visit(row);
    }
  });
}

uint32_t swap_fields(uint32_t word, uint32_t low_fields, int shift) {
  const uint32_t moved = low_fields | low_fields << shift;
  return (word & ~moved) | (word & low_fields) << shift | (word >> shift & low_fields);
}

// A word of 2, 4 or 8 bit elements from the file's order to field_shift's: the unshuffle by halves.
uint32_t unshuffled(uint32_t word, int bits) {
  if (bits == 2) {
    word = swap_fields(word, 0x0c0c0c0cu, 2);
  }
  if (bits <= 4) {
    word = swap_fields(word, 0x00f000f0u, 4);
  }
  return swap_fields(word, 0x0000ff00u, 8);
}

void pack_affine(const Source& from, Matrix& to, Pool& pool) {
  require(from.bits == 2 || from.bits == 3 || from.bits == 4 || from.bits == 5 || from.bits == 6 || from.bits == 8,
          "affine weights of " + std::to_string(from.bits) + " bits");
  require(from.group == 32 || from.group == 64 || from.group == 128,
          "affine groups of " + std::to_string(from.group));
  require(from.biases != nullptr, "affine weights without biases");
  to.encoding = Encoding::affine;
  to.bits = from.bits == 3 ? 4 : from.bits > 4 ? 8 : from.bits;
  to.type = from.type;
  to.blob = Buffer::lasting(to.block_bytes() * to.blocks());
  const size_t value = size_of(to.type);
  const size_t row_words = size_t(from.columns) * from.bits / 32;
  each_record(to, pool, [&](int row, int g, int lane, unsigned char* record, unsigned char* parameters) {
    if (from.bits == to.bits) {
      const size_t words = size_t(to.group) * to.bits / 32;
      for (size_t j = 0; j < words; j++) {
        const uint32_t word = unshuffled(word_at(from.weight, row * row_words + g * words + j), to.bits);
        std::memcpy(record + (j * kLanes + lane) * 4, &word, 4);
      }
    } else {
      fill_record(record, to, lane, [&](int i) {
        return element(from.weight, row * row_words, g * to.group + i, from.bits);
      });
    }
    const size_t at = (size_t(row) * to.groups() + g) * value;
    std::memcpy(parameters + lane * value, static_cast<const unsigned char*>(from.scales) + at, value);
    std::memcpy(parameters + (kLanes + lane) * value, static_cast<const unsigned char*>(from.biases) + at, value);
  });
}

void pack_fp4(const Source& from, Matrix& to, Pool& pool) {
  const bool power_of_two = from.mode == "mxfp4";
  require(from.bits == 4 && from.group == (power_of_two ? 32 : 16), from.mode + " with other groups or bits");
  to.encoding = Encoding::codes;
  to.bits = 8;
  to.zero = kE2M1Zero;
  // E8M0 halves fit bfloat16, E4M3 halves fit float16.
  to.type = power_of_two ? FloatType::bf16 : FloatType::f16;
  to.blob = Buffer::lasting(to.block_bytes() * to.blocks());
  const size_t row_words = size_t(from.columns) * 4 / 32;
  const auto* scales = static_cast<const uint8_t*>(from.scales);
  each_record(to, pool, [&](int row, int g, int lane, unsigned char* record, unsigned char* parameters) {
    fill_record(record, to, lane, [&](int i) {
      return static_cast<uint32_t>(kTwiceE2M1[element(from.weight, row * row_words, g * to.group + i, 4)] + kE2M1Zero);
    });
    const uint8_t byte = scales[size_t(row) * to.groups() + g];
    const uint16_t half = power_of_two ? exact_bfloat(e8m0(byte) * 0.5f) : float_to_half(e4m3(byte) * 0.5f);
    std::memcpy(parameters + lane * 2, &half, 2);
  });
}

void pack_fp8(const Source& from, Matrix& to, Pool& pool) {
  require(from.bits == 8 && from.group == 32, "mxfp8 with other groups or bits");
  to.encoding = Encoding::floats;
  to.type = FloatType::bf16;
  to.blob = Buffer::lasting(to.block_bytes() * to.blocks());
  const auto* codes = static_cast<const uint8_t*>(from.weight);
  const auto* scales = static_cast<const uint8_t*>(from.scales);
  each_row(to, pool, [&](int row) {
    unsigned char* block = to.blob.data() + row / kLanes * to.block_bytes();
    for (int k = 0; k < to.columns; k++) {
      const size_t at = size_t(row) * to.columns + k;
      const uint16_t value = exact_bfloat(e4m3(codes[at]) * e8m0(scales[at / 32]));
      std::memcpy(block + (size_t(k) * kLanes + row % kLanes) * 2, &value, 2);
    }
  });
}

void pack_floats(const Source& from, Matrix& to, Pool& pool) {
  to.encoding = Encoding::floats;
  to.type = from.type;
  to.blob = Buffer::lasting(to.block_bytes() * to.blocks());
  const size_t value = size_of(to.type);
  const auto* values = static_cast<const unsigned char*>(from.weight);
  each_row(to, pool, [&](int row) {
    unsigned char* block = to.blob.data() + row / kLanes * to.block_bytes();
    for (int k = 0; k < to.columns; k++) {
      std::memcpy(block + (size_t(k) * kLanes + row % kLanes) * value,
                  values + (size_t(row) * to.columns + k) * value, value);
    }
  });
}

} // namespace

Matrix pack(const Source& from, Pool& pool) {
  require(from.rows > 0 && from.columns > 0, "an empty matrix");
  Matrix to;
  to.rows = from.rows;
  to.columns = from.columns;
  if (from.scales == nullptr) {
    pack_floats(from, to, pool);
  } else {
    require(from.group > 0 && from.columns % from.group == 0,
            std::to_string(from.columns) + " columns are not a multiple of the group of " + std::to_string(from.group));
    to.group = from.group;
    if (from.mode == "affine") {
      pack_affine(from, to, pool);
    } else if (from.mode == "mxfp4" || from.mode == "nvfp4") {
      pack_fp4(from, to, pool);
    } else if (from.mode == "mxfp8") {
      pack_fp8(from, to, pool);
    } else {
      require(false, "unknown mode \"" + from.mode + "\"");
    }
  }
  if (from.bias != nullptr) {
    to.bias.assign(size_t(to.blocks()) * kLanes, 0.f);
    std::memcpy(to.bias.data(), from.bias, sizeof(float) * from.rows);
  }
  return to;
}

float to_float(const void* value, FloatType type) {
  if (type == FloatType::f32) {
    float wide;
    std::memcpy(&wide, value, 4);
    return wide;
  }
  uint16_t bits;
  std::memcpy(&bits, value, 2);
  return type == FloatType::f16 ? half_to_float(bits) : bfloat_to_float(bits);
}

void unpack_row(const Matrix& matrix, int row, float* out) {
  const unsigned char* block = matrix.block(row / kLanes);
  const int lane = row % kLanes;
  const size_t value = size_of(matrix.type);
  if (matrix.encoding == Encoding::floats) {
    for (int k = 0; k < matrix.columns; k++) {
      *out++ = to_float(block + (size_t(k) * kLanes + lane) * value, matrix.type);
    }
    return;
  }
  const int per_word = 32 / matrix.bits;
  const int words = matrix.group / per_word;
  const uint32_t mask = (1u << matrix.bits) - 1;
  for (int g = 0; g < matrix.groups(); g++) {
    const unsigned char* record = block + g * matrix.record_bytes();
    const unsigned char* parameters = record + size_t(words) * 64;
    const float scale = to_float(parameters + lane * value, matrix.type);
    const bool affine = matrix.encoding == Encoding::affine;
    const float bias = affine ? to_float(parameters + (kLanes + lane) * value, matrix.type) : 0.f;
    for (int j = 0; j < words; j++) {
      const uint32_t word = word_at(record, size_t(j) * kLanes + lane);
      for (int i = 0; i < per_word; i++) {
        const int code = static_cast<int>(word >> field_shift(i, matrix.bits) & mask);
        *out++ = std::fma(scale, static_cast<float>(code - matrix.zero), bias);
      }
    }
  }
}

} // namespace dspark::cpu
