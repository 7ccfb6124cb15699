#include "linear.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace dspark::cpu {
namespace {

// Rows whose integers stay in the second-level cache beside a panel of weights.
constexpr int kRowBatch = 64;
// Blocks of sixteen outputs that a thread takes at a time; more for very wide matrices.
int chunk_of(int blocks) {
  return blocks > 512 ? 64 : 4;
}

// The input of a product in each form that its matrices want, for one batch of rows. One of a thread, reused.
class Input {
 public:
  // Norms the rows if need be. The rows must stay till the products are done.
  void set(const Context& context, const Rows& x, const Norm* norm, int columns) {
    rows_ = x;
    quantized_.rows = 0;
    if (norm == nullptr) {
      return;
    }
    float* out = normed_.get<float>(size_t(x.count) * columns);
    context.pool.run(x.count, 8, [&](int begin, int end) {
      for (int m = begin; m < end; m++) {
        context.kernels.rms_norm(x.row(m), norm->weight, out + size_t(m) * columns, columns, norm->eps);
      }
    });
    rows_ = {out, static_cast<size_t>(columns), x.count};
  }

  // The rows as integers in groups of `group`; made once for matrices that share it.
  void quantize(const Context& context, int columns, int group) {
    if (quantized_.rows == rows_.count && quantized_.group == group) {
      return;
    }
    const size_t groups = columns / group;
    quantized_ = {rows_.count,
                  columns,
                  group,
                  integers_.get<int16_t>(size_t(rows_.count) * columns),
                  scales_.get<float>(rows_.count * groups),
                  scaled_sums_.get<float>(rows_.count * groups),
                  sums_.get<int32_t>(rows_.count * groups)};
    context.pool.run(rows_.count, 8, [&](int begin, int end) {
      for (int m = begin; m < end; m++) {
        context.kernels.quantize(rows_.row(m), columns, group, quantized_.q + size_t(m) * columns,
                                 quantized_.scale + m * groups, quantized_.scaled_sum + m * groups,
                                 quantized_.sum + m * groups);
      }
    });
  }

  // Outputs of blocks [first, last) of one matrix, its bias added.
  void product(const Context& context, const Matrix& w, int first, int last, float* y, size_t stride) const {
    if (w.encoding == Encoding::floats) {
      context.kernels.float_matmul(w, rows_.data, rows_.stride, rows_.count, first, last, y, stride);
    } else {
      context.kernels.integer_matmul(w, quantized_, first, last, y, stride);
    }
    if (w.bias.empty()) {
      return;
    }
    const int end = last * kLanes < w.rows ? last * kLanes : w.rows;
    for (int m = 0; m < rows_.count; m++) {
      for (int n = first * kLanes; n < end; n++) {
        y[m * stride + n] += w.bias[n];
      }
    }
  }

 private:
  Rows rows_{};
  Activations quantized_;
  Scratch normed_, integers_, scales_, scaled_sums_, sums_;
};

Input& input_of_thread() {
  static thread_local Input input;
  return input;
}

bool same_form(const Matrix& a, const Matrix& b) {
  return a.group == b.group; // 0 for floats
}

void prepare(const Context& context, Input& input, const Matrix& w) {
  if (w.encoding != Encoding::floats) {
    input.quantize(context, w.columns, w.group);
  }
}

// Runs body(first, last) over the blocks of one matrix.
template <class Body>
void each_block(const Context& context, const Matrix& w, Body&& body) {
  context.pool.run(w.blocks(), chunk_of(w.blocks()), body);
}

// The products of matrices from `start` on that take the same form of the input, as one job; writes behind `y` and moves
// it on. Returns how many there were.
size_t joined_products(const Context& context, Input& input, const MatrixList& matrices, size_t start, float*& y,
                       size_t stride) {
  size_t end = start;
  int blocks = 0;
  size_t width = 0;
  for (; end < matrices.size() && matrices[end] != nullptr && same_form(*matrices[start], *matrices[end]); end++) {
    blocks += matrices[end]->blocks();
    width += matrices[end]->rows;
  }
  prepare(context, input, *matrices[start]);
  context.pool.run(blocks, chunk_of(blocks), [&](int first, int last) {
    int before = 0;
    float* to = y;
    for (size_t i = start; i < end; i++) {
      const Matrix& w = *matrices[i];
      const int from = std::max(first - before, 0);
      const int until = std::min(last - before, w.blocks());
      if (from < until) {
        input.product(context, w, from, until, to, stride);
      }
      before += w.blocks();
      to += w.rows;
    }
  });
  y += width;
  return end - start;
}

} // namespace

void multiply(const Context& context, const Rows& x, const Norm* norm, const MatrixList& matrices, float* y) {
  Input& input = input_of_thread();
  size_t stride = 0;
  for (const Matrix* w : matrices) {
    stride += w == nullptr ? 0 : w->rows;
  }
  for (int start = 0; start < x.count; start += kRowBatch) {
    const int count = x.count - start < kRowBatch ? x.count - start : kRowBatch;
    input.set(context, x.part(start, count), norm, matrices[0]->columns);
    float* to = y + start * stride;
    for (size_t next = 0; next < matrices.size() && matrices[next] != nullptr;) {
      next += joined_products(context, input, matrices, next, to, stride);
    }
  }
}

void multiply_blocks(const Context& context, const Rows& x, const Matrix& w, int blocks, float* y) {
  Input& input = input_of_thread();
  const size_t stride = std::min(blocks * kLanes, w.rows);
  for (int start = 0; start < x.count; start += kRowBatch) {
    const int count = x.count - start < kRowBatch ? x.count - start : kRowBatch;
    input.set(context, x.part(start, count), nullptr, w.columns);
    prepare(context, input, w);
    context.pool.run(blocks, chunk_of(blocks), [&](int first, int last) {
      input.product(context, w, first, last, y + start * stride, stride);
    });
  }
}

void multiply_add(const Context& context, const Rows& x, const Matrix& w, const Rows& residual, float* y) {
  Input& input = input_of_thread();
  const size_t stride = w.rows;
  for (int start = 0; start < x.count; start += kRowBatch) {
    const int count = x.count - start < kRowBatch ? x.count - start : kRowBatch;
    input.set(context, x.part(start, count), nullptr, w.columns);
    const Rows added = residual.part(start, count);
    float* to = y + start * stride;
    prepare(context, input, w);
    each_block(context, w, [&](int first, int last) {
      input.product(context, w, first, last, to, stride);
      const int end = last * kLanes < w.rows ? last * kLanes : w.rows;
      for (int m = 0; m < count; m++) {
        const float* from = added.row(m);
        float* sum = to + m * stride;
        for (int n = first * kLanes; n < end; n++) {
          sum[n] = from[n] + sum[n];
        }
      }
    });
  }
}

void gated_unit(const Context& context, const Rows& x, const Norm& norm, const Matrix& gate, const Matrix& up,
                Activation activation, float* y) {
  const auto combine = activation == Activation::silu ? context.kernels.silu_multiply : context.kernels.gelu_multiply;
  Input& input = input_of_thread();
  const size_t stride = gate.rows;
  static thread_local Scratch ups_of_thread;
  float* ups = ups_of_thread.get<float>(kRowBatch * stride);
  for (int start = 0; start < x.count; start += kRowBatch) {
    const int count = x.count - start < kRowBatch ? x.count - start : kRowBatch;
    input.set(context, x.part(start, count), &norm, gate.columns);
    float* to = y + start * stride;
    const auto finish = [&](int first, int last) {
      const int begin = first * kLanes;
      const int end = last * kLanes < gate.rows ? last * kLanes : gate.rows;
      for (int m = 0; m < count; m++) {
        float* row = to + m * stride + begin;
        combine(row, ups + m * stride + begin, row, end - begin);
      }
    };
    prepare(context, input, gate);
    if (same_form(gate, up)) {
      each_block(context, gate, [&](int first, int last) {
        input.product(context, gate, first, last, to, stride);
        input.product(context, up, first, last, ups, stride);
        finish(first, last);
      });
      continue;
    }
    // Each wants its own form of the input: the gate waits in y.
    each_block(context, gate, [&](int first, int last) { input.product(context, gate, first, last, to, stride); });
    prepare(context, input, up);
    each_block(context, up, [&](int first, int last) {
      input.product(context, up, first, last, ups, stride);
      finish(first, last);
    });
  }
}

namespace {

struct Best {
  float value = -std::numeric_limits<float>::infinity();
  int index = -1;
};

// The first largest of a[n] + b[n] for n in [begin, end). Sixteen maxima at a time, which the compiler does in vectors;
// the place is looked for once.
Best best_sum(const float* a, const float* b, int begin, int end) {
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, -std::numeric_limits<float>::infinity());
  int n = begin;
  for (; n + kLanes <= end; n += kLanes) {
    for (int i = 0; i < kLanes; i++) {
      const float sum = a[n + i] + b[n + i];
      lanes[i] = sum > lanes[i] ? sum : lanes[i];
    }
  }
  Best best;
  for (; n < end; n++) {
    best.value = std::max(best.value, a[n] + b[n]);
  }
  best.value = std::max(best.value, *std::max_element(lanes, lanes + kLanes));
  for (n = begin; n < end && a[n] + b[n] != best.value; n++) {
  }
  best.index = n < end ? n : -1; // nothing but NaN
  return best;
}

} // namespace

void greedy_walk(const Context& context, const Rows& base, int width, int32_t anchor, const Matrix& before,
                 const Matrix& after, uint32_t* ids, float* features) {
  Input& input = input_of_thread();
  static thread_local Scratch sums_of_thread;
  float* sums = sums_of_thread.get<float>(after.rows);
  const int blocks = (width + kLanes - 1) / kLanes;
  const int piece = chunk_of(blocks);
  int32_t id = anchor;
  for (int i = 0; i < base.count; i++) {
    float* f = features + size_t(i) * before.columns;
    unpack_row(before, id >= 0 && id < before.rows ? id : 0, f);
    input.set(context, {f, static_cast<size_t>(before.columns), 1}, nullptr, before.columns);
    prepare(context, input, after);
    std::vector<Best> found((blocks + piece - 1) / piece);
    context.pool.run(blocks, piece, [&](int first, int last) {
      input.product(context, after, first, last, sums, 0);
      found[first / piece] = best_sum(base.row(i), sums, first * kLanes, std::min(last * kLanes, width));
    });
    Best best;
    for (const Best& one : found) {
      best = one.value > best.value ? one : best;
    }
    id = std::max(best.index, 0);
    ids[i] = static_cast<uint32_t>(id);
  }
}

} // namespace dspark::cpu
