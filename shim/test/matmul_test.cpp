// Packed products: near the exact result, the same bits for every number of rows, split of columns and instruction set;
// infinities, NaNs and denormals stay in their row. Prints a hash that must be the same on every machine.
#include <functional>
#include <limits>

#include "check.h"
#include "float_bits.h"
#include "matrix.h"

namespace {

using namespace dspark::cpu;
using namespace dspark::test;

// A checkpoint's matrix and the memory behind it.
struct Checkpoint {
  Source source;
  std::vector<uint32_t> words;
  std::vector<unsigned char> scales, biases;
};

Pool& packers() {
  static Pool pool(3);
  return pool;
}

void put(std::vector<unsigned char>& to, float value, FloatType type) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (type == FloatType::f32) {
    for (int i = 0; i < 4; i++) {
      to.push_back(static_cast<unsigned char>(bits >> (8 * i)));
    }
    return;
  }
  const uint16_t half = type == FloatType::f16 ? float_to_half(value) : static_cast<uint16_t>(bits >> 16);
  to.push_back(static_cast<unsigned char>(half));
  to.push_back(static_cast<unsigned char>(half >> 8));
}

Checkpoint affine(std::mt19937& random, int rows, int columns, int bits, int group, FloatType type) {
  Checkpoint made;
  made.words.resize(size_t(rows) * columns * bits / 32);
  for (uint32_t& word : made.words) {
    word = static_cast<uint32_t>(random());
  }
  for (int i = 0; i < rows * columns / group; i++) {
    put(made.scales, bell(random) * 0.02f, type);
  }
  for (int i = 0; i < rows * columns / group; i++) {
    put(made.biases, bell(random) * 0.1f, type);
  }
  made.source = {made.words.data(), made.scales.data(), made.biases.data(), nullptr, rows, columns, group, bits, "affine",
                 type};
  return made;
}

Checkpoint fp(std::mt19937& random, int rows, int columns, const std::string& mode) {
  Checkpoint made;
  const int bits = mode == "mxfp8" ? 8 : 4;
  const int group = mode == "nvfp4" ? 16 : 32;
  made.words.resize(size_t(rows) * columns * bits / 32);
  for (uint32_t& word : made.words) {
    word = static_cast<uint32_t>(random());
    if (mode == "mxfp8") {
      word &= 0xf7f7f7f7u; // no NaN codes
    }
  }
  for (int i = 0; i < rows * columns / group; i++) {
    made.scales.push_back(static_cast<unsigned char>(mode == "nvfp4" ? random() % 100 : 118 + random() % 8));
  }
  made.source = {made.words.data(), made.scales.data(), nullptr, nullptr, rows, columns, group, bits, mode, FloatType::f32};
  return made;
}

Checkpoint plain(std::mt19937& random, int rows, int columns, FloatType type) {
  Checkpoint made;
  for (int i = 0; i < rows * columns; i++) {
    put(made.scales, bell(random) * 0.1f, type);
  }
  made.source = {made.scales.data(), nullptr, nullptr, nullptr, rows, columns, 0, 0, "", type};
  return made;
}

// The product of rows [from, from + count) of x, columns computed in two parts.
std::vector<float> product(const Kernels& kernels, const Matrix& w, const std::vector<float>& x, int from, int count,
                           int split) {
  const size_t k = w.columns;
  std::vector<float> y(size_t(count) * w.rows, -7.f);
  if (w.encoding == Encoding::floats) {
    kernels.float_matmul(w, x.data() + from * k, k, count, 0, split, y.data(), w.rows);
    kernels.float_matmul(w, x.data() + from * k, k, count, split, w.blocks(), y.data(), w.rows);
    return y;
  }
  const size_t groups = w.groups();
  std::vector<int16_t> q(count * k);
  std::vector<float> scale(count * groups), scaled_sum(count * groups);
  std::vector<int32_t> sum(count * groups);
  for (int m = 0; m < count; m++) {
    kernels.quantize(x.data() + (from + m) * k, w.columns, w.group, q.data() + m * k, scale.data() + m * groups,
                     scaled_sum.data() + m * groups, sum.data() + m * groups);
  }
  const Activations a{count, w.columns, w.group, q.data(), scale.data(), scaled_sum.data(), sum.data()};
  kernels.integer_matmul(w, a, 0, split, y.data(), w.rows);
  kernels.integer_matmul(w, a, split, w.blocks(), y.data(), w.rows);
  return y;
}

constexpr int kRows = 33;

double relative_error(const Matrix& w, const std::vector<float>& x, const std::vector<float>& y) {
  std::vector<float> row(w.columns);
  double error = 0, size = 0;
  for (int n = 0; n < w.rows; n++) {
    unpack_row(w, n, row.data());
    for (int m = 0; m < kRows; m++) {
      double exact = 0;
      for (int k = 0; k < w.columns; k++) {
        exact += static_cast<double>(x[size_t(m) * w.columns + k]) * row[k];
      }
      const double off = exact - y[size_t(m) * w.rows + n];
      error += off * off;
      size += exact * exact;
    }
  }
  return std::sqrt(error / size);
}

void hold_to_one_result(const std::string& name, const Checkpoint& from, std::mt19937& random, Hash& hash) {
  const Matrix w = pack(from.source, packers());
  std::vector<float> x(size_t(kRows) * w.columns);
  for (float& value : x) {
    value = bell(random);
    if (random() % 97 == 0) {
      value *= 60;
    }
  }
  const std::vector<float> whole = product(*tables().front(), w, x, 0, kRows, 0);
  const double error = relative_error(w, x, whole);
  check(error < (w.encoding == Encoding::floats ? 1e-6 : 2e-4), name + ": relative error " + std::to_string(error));
  for (const Kernels* kernels : tables()) {
    for (const int rows : {kRows, 1, 2, 3, 4, 5, 6, 7, 8, 13, 16}) {
      for (int from_row = 0; from_row + rows <= kRows; from_row += rows) {
        const int split = (rows * 7 + from_row) % (w.blocks() + 1);
        const std::vector<float> part = product(*kernels, w, x, from_row, rows, split);
        const auto start = whole.begin() + from_row * w.rows;
        check(same_bits(part, std::vector<float>(start, start + rows * w.rows)),
              name + " on " + kernels->name + ": " + std::to_string(rows) + " rows from " + std::to_string(from_row));
      }
    }
  }
  hash.add(whole);
}

void hold_strange_values(const std::string& name, const Checkpoint& from, std::mt19937& random) {
  const Matrix w = pack(from.source, packers());
  const std::vector<float> plain_rows = bells(random, size_t(8) * w.columns);
  const float strange[] = {std::numeric_limits<float>::infinity(),   -std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN(),  1e-42f,
                           std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max()};
  for (const Kernels* kernels : tables()) {
    const std::vector<float> clean = product(*kernels, w, plain_rows, 0, 8, 0);
    for (const float value : strange) {
      std::vector<float> x = plain_rows;
      x[size_t(3) * w.columns + random() % w.columns] = value;
      const std::vector<float> y = product(*kernels, w, x, 0, 8, 0);
      bool others_same = true;
      bool poisoned = false;
      for (int m = 0; m < 8; m++) {
        for (int n = 0; n < w.rows; n++) {
          const size_t at = size_t(m) * w.rows + n;
          others_same = others_same && (m == 3 || std::memcmp(&y[at], &clean[at], 4) == 0);
          poisoned = poisoned || (m == 3 && !std::isfinite(y[at]));
        }
      }
      check(others_same, name + ": " + std::to_string(value) + " reached another row");
      check(poisoned || std::isfinite(value), name + ": " + std::to_string(value) + " was lost");
    }
  }
}

void refuse() {
  const auto refused = [](Source source, const std::string& word) {
    try {
      pack(source, packers());
    } catch (const std::invalid_argument& error) {
      return std::string(error.what()).find(word) != std::string::npos;
    }
    return false;
  };
  const uint32_t word = 0;
  check(refused({&word, &word, &word, nullptr, 1, 48, 32, 4, "affine", FloatType::f32}, "multiple"), "columns of no group");
  check(refused({&word, &word, &word, nullptr, 1, 32, 32, 7, "affine", FloatType::f32}, "7 bits"), "seven bits");
  check(refused({&word, &word, nullptr, nullptr, 1, 32, 32, 4, "nf4", FloatType::f32}, "nf4"), "an unknown mode");
  check(refused({&word, nullptr, nullptr, nullptr, 0, 32, 0, 0, "", FloatType::f32}, "empty"), "an empty matrix");
}

} // namespace

int main() {
  std::mt19937 random(7);
  Hash hash;
  const std::pair<int, int> shapes[] = {{48, 256}, {100, 640}, {17, 128}};
  const FloatType types[] = {FloatType::f32, FloatType::f16, FloatType::bf16};
  for (const auto& [rows, columns] : shapes) {
    const std::string size = " " + std::to_string(rows) + "x" + std::to_string(columns);
    for (const int bits : {2, 3, 4, 5, 6, 8}) {
      for (const int group : {32, 64, 128}) {
        for (const FloatType type : types) {
          const std::string name = std::to_string(bits) + " bit, group " + std::to_string(group) + ", type " +
                                   std::to_string(static_cast<int>(type)) + size;
          hold_to_one_result(name, affine(random, rows, columns, bits, group, type), random, hash);
        }
      }
    }
    for (const char* mode : {"mxfp4", "nvfp4", "mxfp8"}) {
      hold_to_one_result(mode + size, fp(random, rows, columns, mode), random, hash);
    }
    for (const FloatType type : types) {
      hold_to_one_result("plain " + std::to_string(static_cast<int>(type)) + size, plain(random, rows, columns, type),
                         random, hash);
    }
  }
  hold_to_one_result("plain, odd columns", plain(random, 20, 37, FloatType::f32), random, hash);
  hold_strange_values("4 bit", affine(random, 40, 128, 4, 32, FloatType::f16), random);
  hold_strange_values("nvfp4", fp(random, 40, 128, "nvfp4"), random);
  hold_strange_values("plain", plain(random, 40, 50, FloatType::f32), random);
  refuse();
  std::printf("hash %016llx\n", static_cast<unsigned long long>(hash.value()));
  return report("matmul");
}
