// The tile of integer_matmul.inl.h over half a block, for AVX2: with sixteen registers, eight lanes of eight rows need one
// unpacking for eight products, sixteen lanes of three rows two for six. The arithmetic is the same to the bit.
namespace dspark::cpu {
namespace {

constexpr int kHalf = kLanes / 2;

// Calls visit(0) … visit(Count − 1) with constants, so that the arrays which they index are registers from the start.
template <int Count, class Visit>
DSPARK_INLINE void unrolled(Visit&& visit) {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (visit(std::integral_constant<int, I>{}), ...);
  }(std::make_integer_sequence<int, Count>{});
}
#define DSPARK_UNROLLED(count, i) unrolled<count>([&](auto i) __attribute__((always_inline))

// sum + the products of the signed 16-bit halves of w and x. Written out because GCC gathers the products of many steps,
// more than there are registers, before it adds them.
DSPARK_INLINE __m256i dot_half(__m256i sum, __m256i w, const int32_t& x) {
  __m256i product;
  asm("vpbroadcastd %[x], %[product]\n\t"
      "vpmaddwd %[w], %[product], %[product]\n\t"
      "vpaddd %[product], %[sum], %[sum]"
      : [sum] "+x"(sum), [product] "=&x"(product)
      : [w] "x"(w), [x] "m"(x));
  return sum;
}

DSPARK_INLINE __m256 load_eight(const unsigned char* p, FloatType type) {
  const __m128i* narrow = reinterpret_cast<const __m128i*>(p);
  switch (type) {
    case FloatType::f16:
      return _mm256_cvtph_ps(_mm_loadu_si128(narrow));
    case FloatType::bf16:
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(narrow)), 16));
    default:
      return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  }
}

// The lower (half = 0) or upper eight outputs of `Blocks` blocks.
template <int Group, int Bits, bool Affine, int Blocks, int Rows>
void half_tile(const Matrix& w, int block, int half, const Activations& a, int row, TileOutput out) {
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
  const __m256i mask = _mm256_set1_epi32(static_cast<int32_t>(((1u << Bits) - 1) * 0x10001u));
  const int32_t* x[Rows];
  __m256 acc[Blocks][Rows];
  DSPARK_UNROLLED(Rows, m) {
    x[m] = reinterpret_cast<const int32_t*>(a.q + size_t(row + m) * a.columns);
    DSPARK_UNROLLED(Blocks, b) { acc[b][m] = _mm256_setzero_ps(); });
  });
  for (int g = 0; g < groups; g++, record += record_bytes) {
    if (half == 0) { // the upper half comes by in the same lines
      DSPARK_UNROLLED(Blocks, b) {
        for (int j = 0; j < kWords; j++) {
          __builtin_prefetch(record + b * block_bytes + j * 64 + 2 * ahead, 0, 2);
          __builtin_prefetch(record + b * block_bytes + j * 64 + ahead);
        }
      });
    }
    __m256i dots[Blocks][Rows];
    DSPARK_UNROLLED(Blocks, b) {
      DSPARK_UNROLLED(Rows, m) { dots[b][m] = _mm256_setzero_si256(); });
    });
#pragma GCC unroll 8
    for (int j = 0; j < kWords; j++) {
      DSPARK_UNROLLED(Blocks, b) {
        const unsigned char* at = record + b * block_bytes + j * 64 + half * 32;
        const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
        DSPARK_UNROLLED(kSteps, s) {
          const __m256i pair = _mm256_and_si256(s == 0 ? words : _mm256_srli_epi32(words, s * Bits), mask);
          DSPARK_UNROLLED(Rows, m) { dots[b][m] = dot_half(dots[b][m], pair, x[m][j * kSteps + s]); });
        });
      });
    }
    DSPARK_UNROLLED(Blocks, b) {
      const unsigned char* parameters = record + b * block_bytes + kWords * 64 + half * kHalf * size_of(w.type);
      const __m256 s = load_eight(parameters, w.type);
      if constexpr (Affine) {
        const __m256 bias = load_eight(parameters + value_bytes, w.type);
        DSPARK_UNROLLED(Rows, m) {
          const __m256 factor = _mm256_mul_ps(s, _mm256_broadcast_ss(scale + m * groups + g));
          acc[b][m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[b][m]), factor, acc[b][m]);
          acc[b][m] = _mm256_fmadd_ps(bias, _mm256_broadcast_ss(scaled_sum + m * groups + g), acc[b][m]);
        });
      } else {
        DSPARK_UNROLLED(Rows, m) {
          const __m256i exact = _mm256_sub_epi32(dots[b][m], _mm256_set1_epi32(w.zero * sum[m * groups + g]));
          const __m256 factor = _mm256_mul_ps(s, _mm256_broadcast_ss(scale + m * groups + g));
          acc[b][m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(exact), factor, acc[b][m]);
        });
      }
    });
    DSPARK_UNROLLED(Rows, m) { x[m] += kWords * kSteps; });
  }
  DSPARK_UNROLLED(Blocks, b) {
    const int column = (block + b) * kLanes + half * kHalf;
    const int n = w.rows - column;
    DSPARK_UNROLLED(Rows, m) {
      float* y = out.y + m * out.stride + column;
      if (n >= kHalf) {
        _mm256_storeu_ps(y, acc[b][m]);
      } else if (n > 0) {
        alignas(32) float lanes[kHalf];
        _mm256_store_ps(lanes, acc[b][m]);
        std::memcpy(y, lanes, sizeof(float) * n);
      }
    });
  });
}

#undef DSPARK_UNROLLED

} // namespace
} // namespace dspark::cpu
