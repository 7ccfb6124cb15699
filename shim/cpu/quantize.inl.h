// Activations to 16-bit integers (kernels.h). Maxima are taken on the bits, where a NaN is largest and order plays no part.
namespace dspark::cpu {
namespace {

void quantize(const float* x, int columns, int group, int16_t* q, float* scale, float* scaled_sum, int32_t* sum) {
  constexpr float kTop = 32767.f;
  constexpr float kTiny = 0x1p-110f;
  const Vi magnitude = splat_int(0x7fffffff);
  for (int g = 0; g < columns / group; g++, x += group, q += group) {
    Vi largest = splat_int(0);
    for (int i = 0; i < group; i += 16) {
      largest = max(largest, bit_and(as_int(load(x + i)), magnitude));
    }
    alignas(64) int32_t lanes[16];
    store_int(lanes, largest);
    int32_t bits = lanes[0];
    for (int i = 1; i < 16; i++) {
      bits = lanes[i] > bits ? lanes[i] : bits;
    }
    const float top = std::bit_cast<float>(bits);
    const bool finite = bits < 0x7f800000;
    if (!finite || top < kTiny) {
      std::memset(q, 0, sizeof(int16_t) * group);
      scale[g] = finite ? 0.f : std::bit_cast<float>(0x7fc00000);
      scaled_sum[g] = scale[g];
      sum[g] = 0;
      continue;
    }
    const Vf inverse = splat(kTop / top);
    Vi total = splat_int(0);
    for (int i = 0; i < group; i += 16) {
      const Vi integers = to_int(mul(load(x + i), inverse));
      store_low_halves(q + i, integers);
      total = add(total, integers);
    }
    store_int(lanes, total);
    int32_t whole = 0;
    for (int i = 0; i < 16; i++) {
      whole += lanes[i];
    }
    scale[g] = top / kTop;
    scaled_sum[g] = scale[g] * static_cast<float>(whole);
    sum[g] = whole;
  }
}

} // namespace
} // namespace dspark::cpu
