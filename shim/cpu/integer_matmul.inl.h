// Packed integer weights times quantized activations. For each row and output:
//   acc = 0; for each group ascending: acc = fma(float(Σ X·(Q − zero)), s·sx, acc); affine: acc = fma(b, sx·ΣX, acc).
// The sum over a group is an exact int32 (at most 32767·255·128 < 2^31), so tiles, threads and instruction sets cannot
// change a bit. Tile sizes are register budgets.
namespace dspark::cpu {
namespace {

// A sanitizer instruments every copy of the tile: two rows at most, or the compiler runs out of memory.
#if defined(DSPARK_FEW_TILES)
constexpr int kTileRows = 2;
constexpr int tile_blocks(int rows) { return rows == 1 ? 2 : 1; }
#elif DSPARK_SIMD == DSPARK_AVX512
constexpr int kTileRows = 6;
constexpr int tile_blocks(int rows) { return rows == 1 ? 12 : rows == 2 ? 4 : 2; }
#elif DSPARK_SIMD == DSPARK_AVX2
constexpr int kTileRows = 8;
constexpr int tile_blocks(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
#elif DSPARK_SIMD == DSPARK_NEON
constexpr int kTileRows = 2;
constexpr int tile_blocks(int) { return 1; }
#else
constexpr int kTileRows = 1;
constexpr int tile_blocks(int) { return 1; }
#endif

// The same place of the tile that comes next: its blocks are streams of their own, too short for the processor to find
// out. What is far ahead would push out what is near.
constexpr size_t prefetch_distance(size_t tile_bytes) {
  return tile_bytes <= size_t(256) << 10 ? tile_bytes : 2048;
}

DSPARK_INLINE Vf load_values(const unsigned char* p, FloatType type) {
  switch (type) {
    case FloatType::f16:
      return load_half(reinterpret_cast<const uint16_t*>(p));
    case FloatType::bf16:
      return load_bfloat(reinterpret_cast<const uint16_t*>(p));
    default:
      return load(reinterpret_cast<const float*>(p));
  }
}

// All pairs of one vector of words, for all rows of the tile.
template <int Step, int Bits, int Rows>
DSPARK_INLINE void dot_word(Vi words, Vi (&sums)[Rows], const int32_t* const (&x)[Rows], int at) {
  constexpr int kSteps = 16 / Bits;
  if constexpr (Step < kSteps) {
    const Vi mask = splat_int(static_cast<int32_t>(((1u << Bits) - 1) * 0x10001u));
    const Vi pair = bit_and(shift_right<Step * Bits>(words), mask);
    for (int m = 0; m < Rows; m++) {
      sums[m] = dot16(sums[m], pair, x[m][at + Step]);
    }
    dot_word<Step + 1, Bits, Rows>(words, sums, x, at);
  }
}

struct TileOutput {
  float* y;
  size_t stride;
};

template <int Group, int Bits, bool Affine, int Blocks, int Rows>
void integer_tile(const Matrix& w, int block, const Activations& a, int row, TileOutput out) {
  constexpr int kWords = Group * Bits / 32;
  constexpr int kSteps = 16 / Bits;
  const int groups = w.groups();
  const size_t record_bytes = w.record_bytes();
  const size_t block_bytes = record_bytes * groups;
  const size_t ahead = prefetch_distance(Blocks * block_bytes);
  const size_t value_bytes = kLanes * size_of(w.type);
  const unsigned char* record = w.block(block);
  const float* scale = a.scale + size_t(row) * groups;
  const float* scaled_sum = a.scaled_sum + size_t(row) * groups;
  const int32_t* sum = a.sum + size_t(row) * groups;
  const int32_t* x[Rows];
  Vf acc[Blocks][Rows];
  for (int m = 0; m < Rows; m++) {
    x[m] = reinterpret_cast<const int32_t*>(a.q + size_t(row + m) * a.columns);
    for (int b = 0; b < Blocks; b++) {
      acc[b][m] = splat(0.f);
    }
  }
  for (int g = 0; g < groups; g++, record += record_bytes) {
    Vi dots[Blocks][Rows];
    for (int b = 0; b < Blocks; b++) {
      for (int m = 0; m < Rows; m++) {
        dots[b][m] = splat_int(0);
      }
    }
#if DSPARK_SIMD == DSPARK_AVX512 && !defined(DSPARK_FEW_TILES)
#pragma GCC unroll 8
#endif
    for (int j = 0; j < kWords; j++) {
      for (int b = 0; b < Blocks; b++) {
        const unsigned char* words = record + b * block_bytes + j * 64;
        if constexpr (Rows == 1) {
          __builtin_prefetch(words + ahead, 0, 2); // many blocks: only the second cache holds them
        } else {
          __builtin_prefetch(words + 2 * ahead, 0, 2);
          __builtin_prefetch(words + ahead);
        }
        dot_word<0, Bits, Rows>(load_int(words), dots[b], x, j * kSteps);
      }
    }
    for (int b = 0; b < Blocks; b++) {
      const unsigned char* parameters = record + b * block_bytes + kWords * 64;
      const Vf s = load_values(parameters, w.type);
      if constexpr (Affine) {
        const Vf bias = load_values(parameters + value_bytes, w.type);
        for (int m = 0; m < Rows; m++) {
          acc[b][m] = fma(to_float(dots[b][m]), mul(s, splat(scale[m * groups + g])), acc[b][m]);
          acc[b][m] = fma(bias, splat(scaled_sum[m * groups + g]), acc[b][m]);
        }
      } else {
        for (int m = 0; m < Rows; m++) {
          const Vi exact = sub(dots[b][m], splat_int(w.zero * sum[m * groups + g]));
          acc[b][m] = fma(to_float(exact), mul(s, splat(scale[m * groups + g])), acc[b][m]);
        }
      }
    }
    for (int m = 0; m < Rows; m++) {
      x[m] += kWords * kSteps;
    }
  }
  for (int b = 0; b < Blocks; b++) {
    const int n = w.rows - (block + b) * kLanes;
    for (int m = 0; m < Rows; m++) {
      float* y = out.y + m * out.stride + size_t(block + b) * kLanes;
      if (n >= kLanes) {
        store(y, acc[b][m]);
      } else {
        store_first(y, acc[b][m], n);
      }
    }
  }
}

} // namespace
} // namespace dspark::cpu

#if DSPARK_SIMD == DSPARK_AVX2
#include "half_tile.inl.h"
#endif

namespace dspark::cpu {
namespace {

// `Blocks` blocks from `block` on for `Rows` rows from `row` on.
template <int Group, int Bits, bool Affine, int Blocks, int Rows>
DSPARK_INLINE void integer_blocks(const Matrix& w, int block, const Activations& a, int row, TileOutput out) {
#if DSPARK_SIMD == DSPARK_AVX2
  // Fewer rows wait for the memory, and wide weights come fastest in one pass.
  constexpr bool kHalves = Rows > (Bits == 8 ? 3 : 1);
#else
  constexpr bool kHalves = false;
#endif
  if constexpr (kHalves) {
    half_tile<Group, Bits, Affine, Blocks, Rows>(w, block, 0, a, row, out);
    half_tile<Group, Bits, Affine, Blocks, Rows>(w, block, 1, a, row, out);
  } else {
    integer_tile<Group, Bits, Affine, Blocks, Rows>(w, block, a, row, out);
  }
}

// Blocks [first, last) for `Rows` rows from `row` on.
template <int Group, int Bits, bool Affine, int Rows>
void integer_rows(const Matrix& w, const Activations& a, int row, int first, int last, TileOutput out) {
  constexpr int kBlocks = tile_blocks(Rows);
  int block = first;
  for (; block + kBlocks <= last; block += kBlocks) {
    integer_blocks<Group, Bits, Affine, kBlocks, Rows>(w, block, a, row, out);
  }
  if constexpr (kBlocks > 4) {
    for (; block + 4 <= last; block += 4) {
      integer_blocks<Group, Bits, Affine, 4, Rows>(w, block, a, row, out);
    }
  }
  if constexpr (kBlocks > 1) {
    for (; block < last; block++) {
      integer_blocks<Group, Bits, Affine, 1, Rows>(w, block, a, row, out);
    }
  }
}

// Calls visit<n>(row) so that n rows at a time, n ≤ Most and as even as possible, cover all rows.
template <int Most, class Visit>
DSPARK_INLINE void even_row_tiles(int rows, Visit&& visit) {
  int row = 0;
  for (int left = (rows + Most - 1) / Most; left > 0; left--) {
    const int count = (rows - row + left - 1) / left;
    [&]<int... I>(std::integer_sequence<int, I...>) {
      ((count == I + 1 ? visit.template operator()<I + 1>(row) : void()), ...);
    }(std::make_integer_sequence<int, Most>{});
    row += count;
  }
}

template <int Group, int Bits, bool Affine>
void integer_panels(const Matrix& w, const Activations& a, int first, int last, float* y, size_t stride) {
  // Few blocks at a time stay in the nearest cache while every row passes.
  const int panel = a.rows <= kTileRows ? last - first : w.block_bytes() > 12288 ? 2 : 4;
  for (int block = first; block < last; block += panel) {
    const int end = block + panel < last ? block + panel : last;
    even_row_tiles<kTileRows>(a.rows, [&]<int Rows>(int row) {
      integer_rows<Group, Bits, Affine, Rows>(w, a, row, block, end, {y + row * stride, stride});
    });
  }
}

template <int Group>
void integer_group(const Matrix& w, const Activations& a, int first, int last, float* y, size_t stride) {
  if constexpr (Group <= 32) {
    if (w.encoding == Encoding::codes) {
      return integer_panels<Group, 8, false>(w, a, first, last, y, stride);
    }
  }
  if constexpr (Group >= 32) {
    switch (w.bits) {
      case 2:
        return integer_panels<Group, 2, true>(w, a, first, last, y, stride);
      case 4:
        return integer_panels<Group, 4, true>(w, a, first, last, y, stride);
      default:
        return integer_panels<Group, 8, true>(w, a, first, last, y, stride);
    }
  }
}

void integer_matmul(const Matrix& w, const Activations& a, int first, int last, float* y, size_t stride) {
  switch (w.group) {
    case 16:
      return integer_group<16>(w, a, first, last, y, stride);
    case 32:
      return integer_group<32>(w, a, first, last, y, stride);
    case 64:
      return integer_group<64>(w, a, first, last, y, stride);
    default:
      return integer_group<128>(w, a, first, last, y, stride);
  }
}

} // namespace
} // namespace dspark::cpu
