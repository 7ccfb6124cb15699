// Plain weights: y = Σ_k x[k]·w[k], k ascending, one fma for each k, from 0. No library's order, the same for any rows.
namespace dspark::cpu {
namespace {

#if defined(DSPARK_FEW_TILES)
constexpr int kFloatRows = 2;
constexpr int float_blocks(int rows) { return rows == 1 ? 2 : 1; }
#elif DSPARK_SIMD == DSPARK_AVX512
constexpr int kFloatRows = 6;
constexpr int float_blocks(int rows) { return rows == 1 ? 8 : rows == 2 ? 6 : 4; }
#elif DSPARK_SIMD == DSPARK_AVX2
constexpr int kFloatRows = 3;
constexpr int float_blocks(int rows) { return rows == 1 ? 4 : 2; }
#elif DSPARK_SIMD == DSPARK_NEON
constexpr int kFloatRows = 4;
constexpr int float_blocks(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
#else
constexpr int kFloatRows = 2;
constexpr int float_blocks(int) { return 1; }
#endif

template <FloatType Type, int Blocks, int Rows>
void float_tile(const Matrix& w, int block, const float* x, size_t x_stride, float* y, size_t stride) {
  constexpr size_t kStep = kLanes * (Type == FloatType::f32 ? 4 : 2);
  const size_t block_bytes = w.block_bytes();
  const unsigned char* values = w.block(block);
  Vf acc[Blocks][Rows];
  for (int b = 0; b < Blocks; b++) {
    for (int m = 0; m < Rows; m++) {
      acc[b][m] = splat(0.f);
    }
  }
  for (int k = 0; k < w.columns; k++, values += kStep) {
    for (int b = 0; b < Blocks; b++) {
      const unsigned char* at = values + b * block_bytes;
      __builtin_prefetch(at + 1024);
      const Vf column = load_values(at, Type);
      for (int m = 0; m < Rows; m++) {
        acc[b][m] = fma(splat(x[m * x_stride + k]), column, acc[b][m]);
      }
    }
  }
  for (int b = 0; b < Blocks; b++) {
    const int n = w.rows - (block + b) * kLanes;
    for (int m = 0; m < Rows; m++) {
      float* to = y + m * stride + size_t(block + b) * kLanes;
      if (n >= kLanes) {
        store(to, acc[b][m]);
      } else {
        store_first(to, acc[b][m], n);
      }
    }
  }
}

template <FloatType Type>
void float_panels(const Matrix& w, const float* x, size_t x_stride, int rows, int first, int last, float* y,
                  size_t stride) {
  const int panel = rows <= kFloatRows ? last - first : 4;
  for (int start = first; start < last; start += panel) {
    const int end = start + panel < last ? start + panel : last;
    even_row_tiles<kFloatRows>(rows, [&]<int Rows>(int row) {
      constexpr int kBlocks = float_blocks(Rows);
      const float* from = x + row * x_stride;
      float* to = y + row * stride;
      int block = start;
      for (; block + kBlocks <= end; block += kBlocks) {
        float_tile<Type, kBlocks, Rows>(w, block, from, x_stride, to, stride);
      }
      if constexpr (kBlocks > 1) {
        for (; block < end; block++) {
          float_tile<Type, 1, Rows>(w, block, from, x_stride, to, stride);
        }
      }
    });
  }
}

void float_matmul(const Matrix& w, const float* x, size_t x_stride, int rows, int first, int last, float* y,
                  size_t stride) {
  switch (w.type) {
    case FloatType::f16:
      return float_panels<FloatType::f16>(w, x, x_stride, rows, first, last, y, stride);
    case FloatType::bf16:
      return float_panels<FloatType::bf16>(w, x, x_stride, rows, first, last, y, stride);
    default:
      return float_panels<FloatType::f32>(w, x, x_stride, rows, first, last, y, stride);
  }
}

} // namespace
} // namespace dspark::cpu
