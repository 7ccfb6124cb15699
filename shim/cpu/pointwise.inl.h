// Norms, activations and the rotation: each row from itself alone, in an order fixed by its length.
namespace dspark::cpu {
namespace {

// Sixteen sums of squares (index mod 16), the last vector padded with zeros, then the fixed tree.
void rms_norm(const float* x, const float* weight, float* y, int n, float eps) {
  Vf squares = splat(0.f);
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    const Vf v = load(x + i);
    squares = fma(v, v, squares);
  }
  if (i < n) {
    const Vf v = load_first(x + i, n - i);
    squares = fma(v, v, squares);
  }
  const float mean = sum_lanes(squares) / static_cast<float>(n);
  const Vf inverse = splat(1.f / std::sqrt(mean + eps));
  for (i = 0; i + 16 <= n; i += 16) {
    store(y + i, mul(mul(load(x + i), inverse), load(weight + i)));
  }
  if (i < n) {
    store_first(y + i, mul(mul(load_first(x + i, n - i), inverse), load_first(weight + i, n - i)), n - i);
  }
}

template <class F>
DSPARK_INLINE void each_pair(const float* a, const float* b, float* y, int n, F&& f) {
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    store(y + i, f(load(a + i), load(b + i)));
  }
  if (i < n) {
    store_first(y + i, f(load_first(a + i, n - i), load_first(b + i, n - i)), n - i);
  }
}

void silu_multiply(const float* gate, const float* up, float* y, int n) {
  each_pair(gate, up, y, n, [](Vf g, Vf u) {
    const Vf sigmoid = div(splat(1.f), add(splat(1.f), exponential(sub(splat(0.f), g))));
    return mul(mul(g, sigmoid), u);
  });
}

// 0.5·g·(1 + tanh(√(2/π)·(g + 0.044715·g³)))
void gelu_multiply(const float* gate, const float* up, float* y, int n) {
  each_pair(gate, up, y, n, [](Vf g, Vf u) {
    const Vf cubic = mul(mul(mul(g, g), g), splat(0.044715f));
    const Vf inner = mul(add(g, cubic), splat(0.79788456080286535588f));
    return mul(mul(mul(g, splat(0.5f)), add(splat(1.f), hyperbolic_tangent(inner))), u);
  });
}

void rotate(float* x, const float* cos, const float* sin, int half, bool interleaved) {
  if (interleaved) {
    for (int j = 0; j < half; j++) {
      const float a = x[2 * j];
      const float b = x[2 * j + 1];
      x[2 * j] = a * cos[j] - b * sin[j];
      x[2 * j + 1] = b * cos[j] + a * sin[j];
    }
    return;
  }
  int j = 0;
  for (; j + 16 <= half; j += 16) {
    const Vf a = load(x + j), b = load(x + half + j), c = load(cos + j), s = load(sin + j);
    store(x + j, sub(mul(a, c), mul(b, s)));
    store(x + half + j, add(mul(b, c), mul(a, s)));
  }
  for (; j < half; j++) {
    const float a = x[j];
    const float b = x[half + j];
    x[j] = a * cos[j] - b * sin[j];
    x[half + j] = b * cos[j] + a * sin[j];
  }
}

// As MLX has it: the first of the largest, a NaN only where it comes first.
int argmax(const float* x, int n) {
  constexpr int kPiece = 1024;
  float best = x[0];
  int piece = 0;
  for (int start = 0; start < n; start += kPiece) {
    const int end = start + kPiece < n ? start + kPiece : n;
    Vf lanes = splat(-std::numeric_limits<float>::infinity());
    int i = start;
    for (; i + 16 <= end; i += 16) {
      lanes = max(load(x + i), lanes);
    }
    float top = max_lanes(lanes);
    for (; i < end; i++) {
      top = x[i] > top ? x[i] : top;
    }
    if (top > best) {
      best = top;
      piece = start;
    }
  }
  int i = piece;
  while (i < n && x[i] != best) {
    i++;
  }
  return i < n ? i : 0;
}

void narrow(const float* x, uint16_t* y, int n) {
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    store_half(y + i, load(x + i));
  }
  if (i < n) {
    alignas(64) uint16_t lanes[16];
    store_half(lanes, load_first(x + i, n - i));
    std::memcpy(y + i, lanes, sizeof(uint16_t) * (n - i));
  }
}

} // namespace
} // namespace dspark::cpu
