// The fused products: each equals its parts done one after the other, for any rows, threads and instruction set.
#include <algorithm>
#include <array>

#include "check.h"
#include "float_bits.h"
#include "linear.h"

namespace {

using namespace dspark::cpu;
using namespace dspark::test;

Pool packers(2);

Matrix random_matrix(std::mt19937& random, int rows, int columns, int bits, int group, bool with_bias) {
  std::vector<uint32_t> words(size_t(rows) * columns * std::max(bits, 1) / 32 + 1);
  for (uint32_t& word : words) {
    word = static_cast<uint32_t>(random());
  }
  const std::vector<float> bias = bells(random, rows);
  Source source;
  source.rows = rows;
  source.columns = columns;
  source.bias = with_bias ? bias.data() : nullptr;
  const std::vector<float> values = bells(random, size_t(rows) * columns, 0.05f);
  if (bits == 0) {
    source.weight = values.data();
    return pack(source, packers);
  }
  source.weight = words.data();
  source.scales = values.data();
  source.biases = values.data() + rows;
  source.bits = bits;
  source.group = group;
  source.mode = "affine";
  return pack(source, packers);
}

std::vector<float> normed(const Kernels& kernels, const std::vector<float>& x, const std::vector<float>& weight, int rows) {
  std::vector<float> y(x.size());
  const int n = static_cast<int>(weight.size());
  for (int m = 0; m < rows; m++) {
    kernels.rms_norm(x.data() + size_t(m) * n, weight.data(), y.data() + size_t(m) * n, n, 1e-5f);
  }
  return y;
}

std::vector<float> alone(const Context& context, const std::vector<float>& x, const Matrix& w, int rows) {
  std::vector<float> y(size_t(rows) * w.rows);
  multiply(context, {x.data(), static_cast<size_t>(w.columns), rows}, nullptr, {&w, nullptr, nullptr}, y.data());
  return y;
}

// `matrices`: gate, up, a third one beside them, and the way back.
void hold(std::mt19937& random, const std::array<Matrix, 4>& matrices, Hash& hash) {
  const auto& [a, b, c, back] = matrices;
  const int rows = 70;
  const int n = a.columns;
  const std::vector<float> x = bells(random, size_t(rows) * n), weight = bells(random, n);
  const Norm norm{weight.data(), 1e-5f};
  Pool one(1), four(4);
  std::vector<float> wanted_joined, wanted_unit, wanted_sum;
  for (const Kernels* kernels : tables()) {
    for (Pool* pool : {&one, &four}) {
      const Context context{*kernels, *pool};
      const size_t width = a.rows + b.rows + c.rows;
      for (const int piece : {rows, 1, 9}) {
        std::vector<float> joined(rows * width), unit(size_t(rows) * a.rows), sum(size_t(rows) * n);
        for (int m = 0; m < rows; m += piece) {
          const int count = std::min(piece, rows - m);
          const Rows part{x.data() + size_t(m) * n, static_cast<size_t>(n), count};
          multiply(context, part, &norm, {&a, &b, &c}, joined.data() + m * width);
          gated_unit(context, part, norm, a, b, Activation::silu, unit.data() + size_t(m) * a.rows);
          multiply_add(context, {unit.data() + size_t(m) * a.rows, static_cast<size_t>(a.rows), count}, back, part,
                       sum.data() + size_t(m) * n);
        }
        if (wanted_joined.empty()) {
          const std::vector<float> input = normed(*kernels, x, weight, rows);
          const std::vector<float> of_a = alone(context, input, a, rows), of_b = alone(context, input, b, rows),
                                   of_c = alone(context, input, c, rows);
          for (int m = 0; m < rows; m++) {
            for (const auto& [part, matrix] : {std::pair{&of_a, &a}, {&of_b, &b}, {&of_c, &c}}) {
              wanted_joined.insert(wanted_joined.end(), part->begin() + size_t(m) * matrix->rows,
                                   part->begin() + size_t(m + 1) * matrix->rows);
            }
          }
          wanted_unit.resize(unit.size());
          kernels->silu_multiply(of_a.data(), of_b.data(), wanted_unit.data(), static_cast<int>(unit.size()));
          wanted_sum = alone(context, wanted_unit, back, rows);
          for (size_t i = 0; i < x.size(); i++) {
            wanted_sum[i] = x[i] + wanted_sum[i];
          }
        }
        const std::string name = std::string(" on ") + kernels->name + ", " + std::to_string(pool->threads()) +
                                 " threads, " + std::to_string(piece) + " rows";
        check(same_bits(joined, wanted_joined), "joined" + name);
        check(same_bits(unit, wanted_unit), "gated unit" + name);
        check(same_bits(sum, wanted_sum), "sum" + name);
      }
    }
  }
  hash.add(wanted_joined);
  hash.add(wanted_unit);
  hash.add(wanted_sum);
}

// Against libm, and the two instruction sets against each other.
void hold_activations(std::mt19937& random, Hash& hash) {
  std::vector<float> gate = bells(random, 333, 8), up(333, 1.f), silu(333), gelu(333);
  for (const Kernels* kernels : tables()) {
    std::vector<float> a(333), b(333);
    kernels->silu_multiply(gate.data(), up.data(), a.data(), 333);
    kernels->gelu_multiply(gate.data(), up.data(), b.data(), 333);
    if (kernels == tables().front()) {
      silu = a;
      gelu = b;
    }
    check(same_bits(a, silu) && same_bits(b, gelu), std::string("activations on ") + kernels->name);
  }
  for (size_t i = 0; i < gate.size(); i++) {
    const double x = gate[i];
    const double wanted_silu = x / (1 + std::exp(-x));
    const double wanted_gelu = 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    check(std::fabs(silu[i] - wanted_silu) < 2e-6 * (1 + std::fabs(x)), "silu of " + std::to_string(x));
    check(std::fabs(gelu[i] - wanted_gelu) < 2e-6 * (1 + std::fabs(x)), "gelu of " + std::to_string(x));
  }
  hash.add(silu);
  hash.add(gelu);
}

void hold_halves() {
  for (uint32_t half = 0; half < 0x10000; half++) {
    const float wide = half_to_float(static_cast<uint16_t>(half));
    if (std::isnan(wide)) {
      continue;
    }
    check(float_to_half(wide) == half, "half " + std::to_string(half));
  }
  for (const Kernels* kernels : tables()) {
    std::mt19937 random(5);
    for (int round = 0; round < 20000; round++) {
      std::vector<float> x(16);
      std::vector<uint16_t> y(16);
      for (float& value : x) {
        const uint32_t bits = static_cast<uint32_t>(random());
        std::memcpy(&value, &bits, 4);
        value = std::isnan(value) ? 0 : value;
      }
      kernels->narrow(x.data(), y.data(), 16);
      bool same = true;
      for (int i = 0; i < 16; i++) {
        same = same && y[i] == float_to_half(x[i]);
      }
      check(same, std::string("narrowing on ") + kernels->name);
    }
  }
}

} // namespace

int main() {
  std::mt19937 random(3);
  Hash hash;
  // Braces, so that the matrices are made in the order in which they stand.
  const auto make = [&](int rows, int columns, int bits, int group, bool bias = false) {
    return random_matrix(random, rows, columns, bits, group, bias);
  };
  hold(random, {make(96, 64, 4, 32), make(96, 64, 4, 32), make(40, 64, 4, 32), make(64, 96, 4, 32)}, hash);
  hold(random, {make(100, 128, 4, 64, true), make(100, 128, 4, 64), make(17, 128, 8, 64, true), make(128, 100, 0, 0)}, hash);
  hold(random, {make(96, 128, 4, 64), make(96, 128, 6, 32, true), make(16, 128, 0, 0), make(128, 96, 3, 32, true)}, hash);
  hold(random, {make(31, 40, 0, 0, true), make(31, 40, 0, 0), make(31, 40, 0, 0), make(40, 31, 0, 0, true)}, hash);
  hold_activations(random, hash);
  hold_halves();
  std::printf("hash %016llx\n", static_cast<unsigned long long>(hash.value()));
  return report("layer");
}
