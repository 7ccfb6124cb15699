// One chunk of attention. For each query, whatever is computed beside it:
//   score = Σ_d q[d]·k[d], d ascending, one fma each; m = max; p = exp(score − m), summed in sixteen lanes (key mod 16) and
//   then the fixed tree; values = Σ p·v, keys ascending, one fma each; merged with the chunks before by
//   M = max(m_old, m), weights exp(m_old − M) and exp(m − M).
// Chunks stand at fixed absolute positions, so neither the row count nor the split of a prompt plays a part. Keys that a
// query does not see are left out by index: what stands there (garbage, a later row's NaN) is never multiplied.
namespace dspark::cpu {
namespace {

constexpr int kDimMax = 512;
#if DSPARK_SIMD == DSPARK_AVX512
constexpr int score_blocks(int) { return 4; }
constexpr int value_vectors(int) { return 4; }
#elif DSPARK_SIMD == DSPARK_AVX2
constexpr int score_blocks(int queries) { return queries > 2 ? 1 : 2; }
constexpr int value_vectors(int queries) { return queries > 2 ? 1 : 2; }
#else
constexpr int score_blocks(int) { return 1; }
constexpr int value_vectors(int) { return 1; }
#endif

template <KvFormat Format>
struct KeyReader {
  const AttentionTile& tile;

  // Feature d of the sixteen keys of `block`.
  DSPARK_INLINE Vf operator()(int block, int d, Vf scale, Vf bias) const {
    const size_t at = (size_t(block) * tile.dim + d) * kLanes;
    if constexpr (Format == KvFormat::f32) {
      return load(static_cast<const float*>(tile.span.keys) + at);
    } else if constexpr (Format == KvFormat::f16) {
      return load_half(static_cast<const uint16_t*>(tile.span.keys) + at);
    } else if constexpr (Format == KvFormat::q8) {
      return fma(scale, to_float(load_bytes(static_cast<const uint8_t*>(tile.span.keys) + at)), bias);
    } else {
      const size_t pair = (size_t(block) * tile.dim + d) / 2 * kLanes;
      return fma(scale, to_float(load_nibbles(static_cast<const uint8_t*>(tile.span.keys) + pair, d % 2 == 1)), bias);
    }
  }
};

template <KvFormat Format, int Queries, int Blocks>
void score_blocks_at(const AttentionTile& tile, int block, float (*scores)[kChunkKeys]) {
  const KeyReader<Format> key{tile};
  Vf sums[Blocks][Queries];
  Vf scale[Blocks], bias[Blocks];
  for (int b = 0; b < Blocks; b++) {
    scale[b] = bias[b] = splat(0.f);
    for (int t = 0; t < Queries; t++) {
      sums[b][t] = splat(0.f);
    }
  }
  const int step = is_quantized(Format) ? tile.group : tile.dim;
  for (int start = 0; start < tile.dim; start += step) {
    if constexpr (is_quantized(Format)) {
      const int groups = tile.dim / tile.group;
      for (int b = 0; b < Blocks; b++) {
        const float* parameters =
            tile.span.key_parameters + (size_t(block + b) * groups + start / tile.group) * 2 * kLanes;
        scale[b] = load(parameters);
        bias[b] = load(parameters + kLanes);
      }
    }
    for (int d = start; d < start + step; d++) {
      Vf k[Blocks];
      for (int b = 0; b < Blocks; b++) {
        k[b] = key(block + b, d, scale[b], bias[b]);
      }
      for (int t = 0; t < Queries; t++) {
        const Vf x = splat(tile.q[t][d]);
        for (int b = 0; b < Blocks; b++) {
          sums[b][t] = fma(x, k[b], sums[b][t]);
        }
      }
    }
  }
  for (int b = 0; b < Blocks; b++) {
    for (int t = 0; t < Queries; t++) {
      store(scores[t] + (block + b) * kLanes, sums[b][t]);
    }
  }
}

// Scores to probabilities relative to their own maximum; lanes outside [first, last) become zero.
struct Softmax {
  float maximum = 0;
  float total = 0;
};
Softmax soften(float* scores, int first, int last, float soft_cap) {
  const int start = first / kLanes * kLanes;
  const int end = (last + kLanes - 1) / kLanes * kLanes;
  if (soft_cap > 0) {
    for (int j = start; j < end; j += kLanes) {
      store(scores + j, mul(splat(soft_cap), hyperbolic_tangent(div(load(scores + j), splat(soft_cap)))));
    }
  }
  const auto outside = [&](float value) {
    for (int j = start; j < first; j++) {
      scores[j] = value;
    }
    for (int j = last; j < end; j++) {
      scores[j] = value;
    }
  };
  outside(-std::numeric_limits<float>::infinity());
  Vf best = load(scores + start);
  for (int j = start + kLanes; j < end; j += kLanes) {
    best = max(best, load(scores + j));
  }
  const float maximum = max_lanes(best);
  for (int j = start; j < end; j += kLanes) {
    store(scores + j, exponential(sub(load(scores + j), splat(maximum))));
  }
  outside(0.f);
  Vf total = splat(0.f);
  for (int j = start; j < end; j += kLanes) {
    total = add(total, load(scores + j));
  }
  return {maximum, sum_lanes(total)};
}

template <KvFormat Format>
DSPARK_INLINE Vf load_value(const AttentionTile& tile, int key, int feature) {
  const size_t at = size_t(key) * tile.padded + feature;
  if constexpr (Format == KvFormat::f32) {
    return load(static_cast<const float*>(tile.span.values) + at);
  } else if constexpr (Format == KvFormat::f16) {
    return load_half(static_cast<const uint16_t*>(tile.span.values) + at);
  } else {
    const int groups = tile.dim / tile.group;
    const float* parameters = tile.span.value_parameters + (size_t(key) * groups + feature / tile.group) * 2;
    const auto* codes = static_cast<const uint8_t*>(tile.span.values);
    if constexpr (Format == KvFormat::q8) {
      return fma(splat(parameters[0]), to_float(load_bytes(codes + at)), splat(parameters[1]));
    } else {
      const uint8_t* bytes = codes + (size_t(key) * tile.dim + feature / 32 * 32) / 2;
      return fma(splat(parameters[0]), to_float(load_nibbles(bytes, feature % 32 != 0)), splat(parameters[1]));
    }
  }
}

// Adds keys [from, to) to `Vectors` vectors of the sums of queries [t0, t0 + Queries).
template <KvFormat Format, int Queries, int Vectors>
void add_values(const AttentionTile& tile, int t0, int from, int to, int feature,
                              const float (*scores)[kChunkKeys], float (*sums)[kDimMax]) {
  if (from >= to) {
    return;
  }
  Vf acc[Queries][Vectors];
  for (int t = 0; t < Queries; t++) {
    for (int i = 0; i < Vectors; i++) {
      acc[t][i] = load(sums[t0 + t] + feature + i * kLanes);
    }
  }
  for (int key = from; key < to; key++) {
    Vf v[Vectors];
    for (int i = 0; i < Vectors; i++) {
      v[i] = load_value<Format>(tile, key, feature + i * kLanes);
    }
    for (int t = 0; t < Queries; t++) {
      const Vf p = splat(scores[t0 + t][key]);
      for (int i = 0; i < Vectors; i++) {
        acc[t][i] = fma(p, v[i], acc[t][i]);
      }
    }
  }
  for (int t = 0; t < Queries; t++) {
    for (int i = 0; i < Vectors; i++) {
      store(sums[t0 + t] + feature + i * kLanes, acc[t][i]);
    }
  }
}

template <KvFormat Format, int Queries, int Vectors>
void weigh_features(const AttentionTile& tile, int feature, const float (*scores)[kChunkKeys],
                                  float (*sums)[kDimMax]) {
  int low = tile.first[0], high = tile.last[0];
  for (int t = 1; t < Queries; t++) {
    low = tile.first[t] > low ? tile.first[t] : low;
    high = tile.last[t] < high ? tile.last[t] : high;
  }
  if (low >= high) {
    for (int t = 0; t < Queries; t++) {
      add_values<Format, 1, Vectors>(tile, t, tile.first[t], tile.last[t], feature, scores, sums);
    }
    return;
  }
  for (int t = 0; t < Queries; t++) {
    add_values<Format, 1, Vectors>(tile, t, tile.first[t], low, feature, scores, sums);
  }
  add_values<Format, Queries, Vectors>(tile, 0, low, high, feature, scores, sums);
  for (int t = 0; t < Queries; t++) {
    add_values<Format, 1, Vectors>(tile, t, high, tile.last[t], feature, scores, sums);
  }
}

void merge(const AttentionTile& tile, int t, Softmax own, const float* sums) {
  const float before = tile.maximum[t];
  const float top = own.maximum > before ? own.maximum : before;
  alignas(64) float weights[16] = {before - top, own.maximum - top};
  store(weights, exponential(load(weights)));
  // A query that has seen nothing yet has the maximum −∞.
  const Vf old_weight = splat(weights[0]);
  const Vf own_weight = splat(weights[1]);
  tile.maximum[t] = top;
  tile.total[t] = __builtin_fmaf(tile.total[t], weights[0], own.total * weights[1]);
  for (int i = 0; i < tile.padded; i += kLanes) {
    float* values = tile.values[t] + i;
    store(values, fma(load(values), old_weight, mul(load(sums + i), own_weight)));
  }
}

template <KvFormat Format, int Queries>
void attend_queries(const AttentionTile& tile) {
  constexpr int kBlocks = score_blocks(Queries);
  constexpr int kVectors = value_vectors(Queries);
  alignas(64) float scores[Queries][kChunkKeys];
  alignas(64) float sums[Queries][kDimMax];
  int low = kChunkKeys, high = 0;
  for (int t = 0; t < Queries; t++) {
    low = tile.first[t] < tile.last[t] && tile.first[t] < low ? tile.first[t] : low;
    high = tile.last[t] > high ? tile.last[t] : high;
    std::memset(sums[t], 0, sizeof(float) * tile.padded);
  }
  int block = low / kLanes;
  const int end = (high + kLanes - 1) / kLanes;
  for (; block + kBlocks <= end; block += kBlocks) {
    score_blocks_at<Format, Queries, kBlocks>(tile, block, scores);
  }
  if constexpr (kBlocks > 1) {
    for (; block < end; block++) {
      score_blocks_at<Format, Queries, 1>(tile, block, scores);
    }
  }
  Softmax own[Queries];
  for (int t = 0; t < Queries; t++) {
    if (tile.first[t] < tile.last[t]) {
      own[t] = soften(scores[t], tile.first[t], tile.last[t], tile.soft_cap);
    }
  }
  int feature = 0;
  for (; feature + kVectors * kLanes <= tile.padded; feature += kVectors * kLanes) {
    weigh_features<Format, Queries, kVectors>(tile, feature, scores, sums);
  }
  if constexpr (kVectors > 1) {
    for (; feature < tile.padded; feature += kLanes) {
      weigh_features<Format, Queries, 1>(tile, feature, scores, sums);
    }
  }
  for (int t = 0; t < Queries; t++) {
    if (tile.first[t] < tile.last[t]) {
      merge(tile, t, own[t], sums[t]);
    }
  }
}

template <KvFormat Format>
void attend_format(const AttentionTile& tile) {
  static_assert(kQueriesMax == 4);
  switch (tile.queries) {
    case 1:
      return attend_queries<Format, 1>(tile);
    case 2:
      return attend_queries<Format, 2>(tile);
    case 3:
      return attend_queries<Format, 3>(tile);
    default:
      return attend_queries<Format, 4>(tile);
  }
}

void attend(const AttentionTile& tile) {
  switch (tile.format) {
    case KvFormat::f16:
      return attend_format<KvFormat::f16>(tile);
    case KvFormat::q8:
      return attend_format<KvFormat::q8>(tile);
    case KvFormat::q4:
      return attend_format<KvFormat::q4>(tile);
    default:
      return attend_format<KvFormat::f32>(tile);
  }
}

} // namespace
} // namespace dspark::cpu
