// See dspark_cpu.h. What can be wrong is checked when an array is made, so that evaluating it cannot fail.
#include "dspark_cpu.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "cpu_task.h"
#include "failure.h"
#include "self_attention.h"

#define DSPARK_API extern "C" __attribute__((visibility("default")))

namespace {

namespace mx = mlx::core;
using namespace dspark::cpu;
using dspark::CpuTask;
using dspark::guarded;
using dspark::View;
using MatrixPtr = std::shared_ptr<const Matrix>;
using AttentionPtr = std::shared_ptr<const AttentionSpec>;

void require(bool holds, const std::string& message) {
  if (!holds) {
    throw std::invalid_argument(message);
  }
}

const mx::array& array_of(const mlx_array& handle) {
  require(handle.ctx != nullptr, "an array is missing");
  return *static_cast<mx::array*>(handle.ctx);
}

const MatrixPtr& matrix_of(const dspark_cpu_matrix& handle) {
  require(handle.ctx != nullptr, "a packed matrix is missing");
  return *static_cast<MatrixPtr*>(handle.ctx);
}

void put(mlx_array* res, mx::array value) {
  if (res->ctx == nullptr) {
    res->ctx = new mx::array(std::move(value));
  } else {
    *static_cast<mx::array*>(res->ctx) = std::move(value);
  }
}

mx::Stream stream_of(const mlx_stream& handle) {
  const mx::Stream stream =
      handle.ctx == nullptr ? mx::default_stream(mx::Device::cpu) : *static_cast<mx::Stream*>(handle.ctx);
  require(stream.device == mx::Device::cpu, "the CPU backend runs on CPU streams");
  return stream;
}

std::string text(const mx::Shape& shape) {
  std::string out("[");
  for (size_t axis = 0; axis < shape.size(); axis++) {
    if (axis > 0) {
      out.push_back(',');
    }
    out.append(std::to_string(shape[axis]));
  }
  out.push_back(']');
  return out;
}

void require_rows(const mx::array& x, int features, const char* what) {
  require(x.dtype() == mx::float32, std::string(what) + ": activations of the CPU backend are float32");
  require(x.ndim() == 2 && x.shape(1) == features,
          std::string(what) + ": has shape " + text(x.shape()) + ", wanted [rows," + std::to_string(features) + "]");
}

// A float32 constant of the model: read when the array is made, its memory kept with the task.
struct Vector {
  Vector(const mlx_array& handle, int length, const char* what) : array(array_of(handle)) {
    require(array.dtype() == mx::float32 && static_cast<int>(array.size()) == length,
            std::string(what) + ": must be float32[" + std::to_string(length) + "]");
    require(array.is_available() && array.flags().row_contiguous, std::string(what) + ": must be evaluated");
  }
  const float* data() const {
    return array.data<float>();
  }
  mx::array array;
};

std::vector<float> floats_of(const mlx_array& handle, int length, const char* what) {
  if (handle.ctx == nullptr) {
    return {};
  }
  const Vector vector(handle, length, what);
  return {vector.data(), vector.data() + length};
}

FloatType float_type(const mx::array& a, const char* what) {
  require(a.dtype() == mx::float32 || a.dtype() == mx::float16 || a.dtype() == mx::bfloat16,
          std::string(what) + ": must be float32, float16 or bfloat16");
  return a.dtype() == mx::float32 ? FloatType::f32 : a.dtype() == mx::float16 ? FloatType::f16 : FloatType::bf16;
}

// Rows of an evaluated array; only a last axis that is not dense is copied.
Rows rows_of(const View& a, Scratch& scratch) {
  const int count = a.shape(0);
  const int features = a.shape(1);
  if (features == 1 || a.strides(1) == 1) {
    return {a.data<float>(), static_cast<size_t>(count == 1 ? features : a.strides(0)), count};
  }
  float* copy = scratch.get<float>(a.size());
  for (int m = 0; m < count; m++) {
    for (int k = 0; k < features; k++) {
      copy[size_t(m) * features + k] = a.data<float>()[m * a.strides(0) + k * a.strides(1)];
    }
  }
  return {copy, static_cast<size_t>(features), count};
}

// The same without a distance between the rows.
Rows dense_rows(const View& a, Scratch& scratch) {
  const Rows rows = rows_of(a, scratch);
  const size_t features = a.shape(1);
  if (rows.stride == features) {
    return rows;
  }
  float* copy = scratch.get<float>(a.size());
  for (int m = 0; m < rows.count; m++) {
    std::copy(rows.row(m), rows.row(m) + features, copy + m * features);
  }
  return {copy, features, rows.count};
}

// Rows whose inner values a feed-forward block holds at a time.
constexpr int kInnerRows = 64;

// One for each argument or inner value of a task: what a task holds at a time must not share it.
Scratch& scratch_of_thread(int use) {
  static thread_local Scratch scratch[4];
  return scratch[use];
}

// Rows of one argument through `compute(context, rows, out)`.
template <class Compute>
mx::array rows_task(const char* name, const mx::array& x, int features, const mlx_stream& s, Compute&& compute) {
  const Kernels& table = kernels();
  return CpuTask::make(
      name, {x.shape(0), features}, {x}, stream_of(s), [compute, &table](const auto& in, auto& out) {
        const std::shared_ptr<Pool> threads = pool();
        compute(Context{table, *threads}, rows_of(in[0], scratch_of_thread(0)), out[0].template data<float>());
      });
}

} // namespace

DSPARK_API int dspark_cpu_set_threads(int threads) {
  return guarded([&] { threads == 0 ? reset_threads() : set_threads(threads); });
}

DSPARK_API int dspark_cpu_threads(int* res) {
  return guarded([&] { *res = pool()->threads(); });
}

DSPARK_API const char* dspark_cpu_isa(void) {
  const char* name = nullptr;
  guarded([&] { name = kernels().name; });
  return name;
}

DSPARK_API size_t dspark_cpu_bytes(void) {
  return bytes_held.load();
}

DSPARK_API int dspark_cpu_pack(
    dspark_cpu_matrix* res,
    const mlx_array w,
    const mlx_array scales,
    const mlx_array biases,
    int group_size,
    int bits,
    const char* mode,
    const mlx_array bias) {
  return guarded([&] {
    // The copies keep the memory while it is read.
    std::vector<mx::array> parts{mx::contiguous(array_of(w))};
    Source source;
    require(parts[0].ndim() == 2, "pack: the weight has shape " + text(parts[0].shape()) + ", wanted two axes");
    source.rows = parts[0].shape(0);
    if (scales.ctx == nullptr) {
      source.type = float_type(parts[0], "pack: the weight");
      source.columns = parts[0].shape(1);
    } else {
      require(parts[0].dtype() == mx::uint32, "pack: a packed weight is uint32");
      require(bits > 0 && group_size > 0, "pack: bits and group size must be positive");
      source.bits = bits;
      source.group = group_size;
      source.mode = mode;
      source.columns = static_cast<int>(static_cast<int64_t>(parts[0].shape(1)) * 32 / bits);
      const mx::Shape wanted{source.rows, source.columns / group_size};
      for (const mlx_array& part : {scales, biases}) {
        if (part.ctx != nullptr) {
          parts.push_back(mx::contiguous(array_of(part)));
          require(parts.back().shape() == wanted, "pack: scales or biases have shape " + text(parts.back().shape()) +
                                                      ", the weight asks for " + text(wanted));
        }
      }
      if (source.mode == "affine") {
        source.type = float_type(parts[1], "pack: the scales");
        require(parts.size() == 3 && parts[2].dtype() == parts[1].dtype(), "pack: biases must be there, typed as the scales");
      } else {
        require(parts[1].dtype() == mx::uint8, "pack: scales of " + source.mode + " are uint8");
      }
    }
    mx::eval(parts);
    source.weight = parts[0].data<void>();
    source.scales = parts.size() > 1 ? parts[1].data<void>() : nullptr;
    source.biases = parts.size() > 2 ? parts[2].data<void>() : nullptr;
    const std::vector<float> added = floats_of(bias, source.rows, "pack: the bias");
    source.bias = added.empty() ? nullptr : added.data();
    res->ctx = new MatrixPtr(std::make_shared<const Matrix>(pack(source, *pool())));
  });
}

DSPARK_API int dspark_cpu_matrix_free(dspark_cpu_matrix matrix) {
  delete static_cast<MatrixPtr*>(matrix.ctx);
  return 0;
}

DSPARK_API int dspark_cpu_matmul(
    mlx_array* res,
    const mlx_array x,
    const dspark_cpu_matrix m,
    int outputs,
    const mlx_stream s) {
  return guarded([&] {
    const MatrixPtr w = matrix_of(m);
    require_rows(array_of(x), w->columns, "matmul: x");
    const int blocks = outputs > 0 && outputs < w->rows ? (outputs + kLanes - 1) / kLanes : w->blocks();
    const int features = std::min(blocks * kLanes, w->rows);
    put(res, rows_task("DsparkMatmul", array_of(x), features, s, [w, blocks](const Context& context, const Rows& rows, float* out) {
          multiply_blocks(context, rows, *w, blocks, out);
        }));
  });
}

DSPARK_API int dspark_cpu_matmul_add(
    mlx_array* res,
    const mlx_array x,
    const dspark_cpu_matrix m,
    const mlx_array residual,
    const mlx_stream s) {
  return guarded([&] {
    const MatrixPtr w = matrix_of(m);
    const mx::array& input = array_of(x);
    const mx::array& added = array_of(residual);
    require_rows(input, w->columns, "matmul_add: x");
    require_rows(added, w->rows, "matmul_add: the residual");
    require(input.shape(0) == added.shape(0), "matmul_add: x and the residual have different row counts");
    const Kernels& table = kernels();
    put(res, CpuTask::make("DsparkMatmulAdd", {input.shape(0), w->rows}, {input, added}, stream_of(s),
                           [w, &table](const auto& in, auto& out) {
                             const std::shared_ptr<Pool> threads = pool();
                             multiply_add({table, *threads}, rows_of(in[0], scratch_of_thread(0)), *w,
                                          rows_of(in[1], scratch_of_thread(1)), out[0].template data<float>());
                           }));
  });
}

DSPARK_API int dspark_cpu_norm_matmul(
    mlx_array* res,
    const mlx_array x,
    const mlx_array norm,
    float eps,
    const dspark_cpu_matrix a,
    const dspark_cpu_matrix b,
    const dspark_cpu_matrix c,
    const mlx_stream s) {
  return guarded([&] {
    std::array<MatrixPtr, 3> matrices{matrix_of(a)};
    size_t count = 1;
    int features = matrices[0]->rows;
    for (const dspark_cpu_matrix& more : {b, c}) {
      if (more.ctx != nullptr) {
        matrices[count] = matrix_of(more);
        require(matrices[count]->columns == matrices[0]->columns, "norm_matmul: the matrices take different inputs");
        features += matrices[count++]->rows;
      }
    }
    require_rows(array_of(x), matrices[0]->columns, "norm_matmul: x");
    const Vector weight(norm, matrices[0]->columns, "norm_matmul: the norm");
    put(res, rows_task("DsparkNormMatmul", array_of(x), features, s,
                       [matrices, weight, eps](const Context& context, const Rows& rows, float* out) {
                         const Norm by{weight.data(), eps};
                         multiply(context, rows, &by, {matrices[0].get(), matrices[1].get(), matrices[2].get()}, out);
                       }));
  });
}

DSPARK_API int dspark_cpu_feed_forward(
    mlx_array* res,
    const mlx_array x,
    const mlx_array norm,
    float eps,
    const dspark_cpu_matrix gate,
    const dspark_cpu_matrix up,
    const dspark_cpu_matrix down,
    int activation,
    const mlx_stream s) {
  return guarded([&] {
    const MatrixPtr g = matrix_of(gate), u = matrix_of(up), d = matrix_of(down);
    require(g->rows == u->rows && g->columns == u->columns, "feed_forward: gate and up have different shapes");
    require(d->columns == g->rows && d->rows == g->columns, "feed_forward: down does not lead back to the input");
    require(activation == 0 || activation == 1, "feed_forward: unknown activation");
    require_rows(array_of(x), g->columns, "feed_forward: x");
    const Vector weight(norm, g->columns, "feed_forward: the norm");
    const Activation act = activation == 0 ? Activation::silu : Activation::gelu_tanh;
    put(res, rows_task("DsparkFeedForward", array_of(x), d->rows, s,
                       [g, u, d, weight, eps, act](const Context& context, const Rows& rows, float* out) {
                         const size_t width = g->rows;
                         // A batch's inner values stay in the near caches between the two products.
                         for (int start = 0; start < rows.count; start += kInnerRows) {
                           const Rows part = rows.part(start, std::min(kInnerRows, rows.count - start));
                           float* inner = scratch_of_thread(1).get<float>(width * part.count);
                           gated_unit(context, part, {weight.data(), eps}, *g, *u, act, inner);
                           multiply_add(context, {inner, width, part.count}, *d, part, out + size_t(start) * d->rows);
                         }
                       }));
  });
}

DSPARK_API int dspark_cpu_norm(mlx_array* res, const mlx_array x, const mlx_array norm, float eps, const mlx_stream s) {
  return guarded([&] {
    const mx::array& input = array_of(x);
    require(input.ndim() == 2, "norm: x has shape " + text(input.shape()) + ", wanted two axes");
    const int features = input.shape(1);
    require_rows(input, features, "norm: x");
    const Vector weight(norm, features, "norm: the norm");
    put(res, rows_task("DsparkNorm", input, features, s, [weight, eps, features](const Context& context, const Rows& rows, float* out) {
          context.pool.run(rows.count, 8, [&](int begin, int end) {
            for (int m = begin; m < end; m++) {
              context.kernels.rms_norm(rows.row(m), weight.data(), out + size_t(m) * features, features, eps);
            }
          });
        }));
  });
}

DSPARK_API int dspark_cpu_argmax(mlx_array* res, const mlx_array x, const mlx_stream s) {
  return guarded([&] {
    const mx::array& input = array_of(x);
    if (input.dtype() != mx::float32 || input.ndim() != 2 || input.size() == 0) {
      put(res, mx::argmax(input, -1, false, stream_of(s)));
      return;
    }
    const Kernels& table = kernels();
    put(res, CpuTask::make(
                 "DsparkArgmax", {input.shape(0)}, mx::uint32, {input}, stream_of(s), [&table](const auto& in, auto& out) {
                   const Rows rows = rows_of(in[0], scratch_of_thread(0));
                   const int features = in[0].shape(1);
                   pool()->run(rows.count, 1, [&](int begin, int end) {
                     for (int m = begin; m < end; m++) {
                       out[0].template data<uint32_t>()[m] = table.argmax(rows.row(m), features);
                     }
                   });
                 }));
  });
}

DSPARK_API int dspark_cpu_embed(mlx_array* res, const mlx_array ids, const dspark_cpu_matrix m, const mlx_stream s) {
  return guarded([&] {
    const MatrixPtr w = matrix_of(m);
    const mx::array& wanted = array_of(ids);
    require(wanted.ndim() == 1 && (wanted.dtype() == mx::int32 || wanted.dtype() == mx::uint32),
            "embed: ids must be int32 or uint32 [count]");
    put(res, CpuTask::make("DsparkEmbed", {wanted.shape(0), w->columns}, {wanted}, stream_of(s), [w](const auto& in, auto& out) {
          // An id above 2^31 is outside whichever type it has.
          const auto* id = in[0].template data<int32_t>();
          const auto step = in[0].strides(0);
          float* to = out[0].template data<float>();
          pool()->run(in[0].shape(0), 8, [&](int begin, int end) {
            for (int i = begin; i < end; i++) {
              float* row = to + size_t(i) * w->columns;
              const int32_t which = id[i * step];
              if (which >= 0 && which < w->rows) {
                unpack_row(*w, which, row);
              } else {
                std::fill(row, row + w->columns, std::numeric_limits<float>::quiet_NaN());
              }
            }
          });
        }));
  });
}

DSPARK_API int dspark_cpu_rope_table(
    mlx_array* res,
    const mlx_array positions,
    const double* inverse,
    int half,
    double magnitude,
    const mlx_stream s) {
  return guarded([&] {
    const mx::array& wanted = array_of(positions);
    require(wanted.ndim() == 1 && wanted.dtype() == mx::int32, "rope_table: positions must be int32 [count]");
    require(half > 0, "rope_table: nothing is rotated");
    const std::vector<double> rates(inverse, inverse + half);
    put(res, CpuTask::make("DsparkRopeTable", {wanted.shape(0), 2 * half}, {wanted}, stream_of(s),
                           [rates, magnitude](const auto& in, auto& out) {
                             const int width = static_cast<int>(rates.size());
                             float* to = out[0].template data<float>();
                             for (int i = 0; i < in[0].shape(0); i++) {
                               const int32_t position = in[0].template data<int32_t>()[i * in[0].strides(0)];
                               rope_table(&position, 1, rates.data(), width, magnitude, to + size_t(i) * 2 * width);
                             }
                           }));
  });
}

DSPARK_API int dspark_cpu_attention_new(
    dspark_cpu_attention* res,
    int heads,
    int kv_heads,
    int dim,
    float scale,
    int rope_dims,
    bool interleaved,
    const mlx_array q_norm,
    float q_eps,
    const mlx_array k_norm,
    float k_eps,
    float soft_cap,
    const mlx_array sinks) {
  return guarded([&] {
    require(heads > 0 && kv_heads > 0 && heads % kv_heads == 0,
            "attention: " + std::to_string(heads) + " heads do not share " + std::to_string(kv_heads) + " evenly");
    require(dim > 0 && dim <= 512, "attention: head dimension " + std::to_string(dim) + " is not from 1 to 512");
    require(rope_dims >= 0 && rope_dims <= dim && rope_dims % 2 == 0,
            "attention: cannot rotate " + std::to_string(rope_dims) + " of " + std::to_string(dim) + " features");
    AttentionSpec spec;
    spec.heads = heads;
    spec.kv_heads = kv_heads;
    spec.dim = dim;
    spec.scale = scale;
    spec.rope_dims = rope_dims;
    spec.interleaved = interleaved;
    spec.q_norm = floats_of(q_norm, dim, "attention: the norm of queries");
    spec.k_norm = floats_of(k_norm, dim, "attention: the norm of keys");
    spec.q_eps = q_eps;
    spec.k_eps = k_eps;
    spec.soft_cap = soft_cap;
    spec.sinks = floats_of(sinks, heads, "attention: the sinks");
    res->ctx = new AttentionPtr(std::make_shared<const AttentionSpec>(std::move(spec)));
  });
}

DSPARK_API int dspark_cpu_attention_free(dspark_cpu_attention attention) {
  delete static_cast<AttentionPtr*>(attention.ctx);
  return 0;
}

DSPARK_API int dspark_cpu_kv_new(dspark_cpu_kv* res, int heads, int dim, int format, int group) {
  return guarded([&] {
    require(format >= 0 && format <= 3, "keys and values: unknown format " + std::to_string(format));
    res->ctx = new KvStore({heads, dim, static_cast<KvFormat>(format), group});
  });
}

DSPARK_API int dspark_cpu_kv_free(dspark_cpu_kv kv) {
  delete static_cast<KvStore*>(kv.ctx);
  return 0;
}

DSPARK_API size_t dspark_cpu_kv_bytes(dspark_cpu_kv kv) {
  return static_cast<KvStore*>(kv.ctx)->bytes();
}

DSPARK_API int dspark_cpu_kv_first(dspark_cpu_kv kv) {
  return static_cast<KvStore*>(kv.ctx)->first_token();
}

DSPARK_API int dspark_cpu_kv_fork(dspark_cpu_kv* res, dspark_cpu_kv kv) {
  return guarded([&] { res->ctx = static_cast<KvStore*>(kv.ctx)->fork().release(); });
}

namespace {

const AttentionPtr& attention_of(const dspark_cpu_attention& handle) {
  require(handle.ctx != nullptr, "attend: the attention is missing");
  return *static_cast<AttentionPtr*>(handle.ctx);
}

// Features of keys and values, with or without those of queries before them.
int joined_features(const AttentionSpec& spec, bool queries) {
  return ((queries ? spec.heads : 0) + 2 * spec.kv_heads) * spec.dim;
}

// What the steps over rows share: their inputs, with what each row waits for, and the rows themselves.
struct RowsStep {
  AttentionPtr spec;
  std::vector<mx::array> inputs;
  std::vector<AttentionRow> rows;
  bool rotated = false;

  RowsStep(AttentionPtr attention, const mlx_array& x, int features, const mlx_array& rope, const dspark_cpu_row* given,
           int count)
      : spec(std::move(attention)) {
    const mx::array& input = array_of(x);
    require_rows(input, features, "attend: x");
    inputs.push_back(input);
    rotated = rope.ctx != nullptr;
    require(rotated == (spec->rope_dims > 0), "attend: a rope table goes with a rotation");
    if (rotated) {
      require_rows(array_of(rope), spec->rope_dims, "attend: rope");
      require(array_of(rope).shape(0) == input.shape(0), "attend: rope and x have different row counts");
      inputs.push_back(array_of(rope));
    }
    int64_t total = 0;
    for (int r = 0; r < count; r++) {
      const KvStore* store = static_cast<KvStore*>(given[r].kv.ctx);
      require(store != nullptr && given[r].count > 0, "attend: row " + std::to_string(r) + " has no store or no tokens");
      require(store->shape().heads == spec->kv_heads && store->shape().dim == spec->dim,
              "attend: row " + std::to_string(r) + " was made for another layer");
      total += given[r].count;
      if (given[r].after.ctx != nullptr) {
        inputs.push_back(array_of(given[r].after));
      }
    }
    require(total == input.shape(0), "attend: the rows have " + std::to_string(total) + " tokens, x " +
                                         std::to_string(input.shape(0)));
  }

  // The rows as the next tokens of their stores, with room for them.
  void append(const dspark_cpu_row* given, int count) {
    // Tokens before the window that stay, so that rejected ones can be rolled back.
    constexpr int64_t kSlack = 64;
    for (int r = 0; r < count; r++) {
      const dspark_cpu_row& row = given[r];
      KvStore* store = static_cast<KvStore*>(row.kv.ctx);
      const int64_t end = int64_t(row.start) + row.count;
      rows.push_back({store->writable(row.start, end), row.start, row.count, row.window});
      if (row.window > 0) {
        store->forget_before(end - row.window - kSlack);
      }
    }
  }

  const float* rope(const CpuTask::Views& in, Rows& held) const {
    held = rotated ? dense_rows(in[1], scratch_of_thread(1)) : Rows{};
    return held.data;
  }
};

} // namespace

DSPARK_API int dspark_cpu_self_attention(
    mlx_array* res,
    mlx_array* token,
    const dspark_cpu_attention attention,
    const mlx_array x,
    const mlx_array norm,
    float eps,
    const dspark_cpu_matrix q,
    const dspark_cpu_matrix k,
    const dspark_cpu_matrix v,
    const dspark_cpu_matrix o,
    const mlx_array rope,
    const dspark_cpu_row* rows,
    int row_count,
    const mlx_stream s) {
  return guarded([&] {
    const AttentionPtr& spec = attention_of(attention);
    const std::array<MatrixPtr, 3> joined{matrix_of(q), matrix_of(k), matrix_of(v)};
    const MatrixPtr output = matrix_of(o);
    const int features = joined[0]->columns, width = spec->heads * spec->dim, kv_width = spec->kv_heads * spec->dim;
    require(joined[1]->columns == features && joined[2]->columns == features,
            "self_attention: the projections take different inputs");
    require(joined[0]->rows == width && joined[1]->rows == kv_width && joined[2]->rows == kv_width,
            "self_attention: the projections do not give the heads of the attention");
    require(output->columns == width && output->rows == features, "self_attention: o does not lead back to the input");
    const Vector weight(norm, features, "self_attention: the norm");
    RowsStep step(spec, x, features, rope, rows, row_count);
    step.append(rows, row_count);
    const Kernels& table = kernels();
    const mx::Shape shape{step.inputs[0].shape(0), features};
    std::vector<mx::array> inputs = std::move(step.inputs);
    std::vector<mx::array> made = CpuTask::make_two(
        "DsparkSelfAttention", shape, mx::float32, {1}, std::move(inputs), stream_of(s),
        [step = std::move(step), joined, output, weight, eps, width, &table](const auto& in, auto& out) {
          const std::shared_ptr<Pool> threads = pool();
          const Context context{table, *threads};
          const Rows tokens = rows_of(in[0], scratch_of_thread(0));
          Rows turns;
          const Norm by{weight.data(), eps};
          float* qkv = scratch_of_thread(2).get<float>(size_t(tokens.count) * joined_features(*step.spec, true));
          multiply(context, tokens, &by, {joined[0].get(), joined[1].get(), joined[2].get()}, qkv);
          float* heads = scratch_of_thread(3).get<float>(size_t(tokens.count) * width);
          self_attention(context, *step.spec, step.rows, qkv, step.rope(in, turns), heads);
          multiply_add(context, {heads, static_cast<size_t>(width), tokens.count}, *output, tokens,
                       out[0].template data<float>());
          *out[1].template data<float>() = 0;
        });
    put(res, std::move(made[0]));
    put(token, std::move(made[1]));
  });
}

DSPARK_API int dspark_cpu_append(
    mlx_array* token,
    const dspark_cpu_attention attention,
    const mlx_array kv,
    const mlx_array rope,
    const dspark_cpu_row* rows,
    int row_count,
    const mlx_stream s) {
  return guarded([&] {
    const AttentionPtr& spec = attention_of(attention);
    RowsStep step(spec, kv, joined_features(*spec, false), rope, rows, row_count);
    step.append(rows, row_count);
    const Kernels& table = kernels();
    std::vector<mx::array> inputs = std::move(step.inputs);
    put(token, CpuTask::make("DsparkAppend", {1}, std::move(inputs), stream_of(s),
                             [step = std::move(step), &table](const auto& in, auto& out) {
                               const std::shared_ptr<Pool> threads = pool();
                               Rows turns;
                               append_keys_values({table, *threads}, *step.spec, step.rows,
                                                  dense_rows(in[0], scratch_of_thread(0)).data, step.rope(in, turns));
                               *out[0].template data<float>() = 0;
                             }));
  });
}

DSPARK_API int dspark_cpu_attend_block(
    mlx_array* res,
    const dspark_cpu_attention attention,
    const mlx_array qkv,
    const mlx_array rope,
    const dspark_cpu_row* rows,
    int row_count,
    bool causal,
    bool windowed,
    const mlx_stream s) {
  return guarded([&] {
    const AttentionPtr& spec = attention_of(attention);
    RowsStep step(spec, qkv, joined_features(*spec, true), rope, rows, row_count);
    for (int r = 0; r < row_count; r++) {
      const dspark_cpu_row& row = rows[r];
      const std::shared_ptr<const KvTable>& held = static_cast<KvStore*>(row.kv.ctx)->table();
      require(row.count <= kChunkKeys, "attend_block: a block of " + std::to_string(row.count) + " tokens is too long");
      const int64_t end = (held->first_chunk + static_cast<int64_t>(held->chunks.size())) * kChunkKeys;
      require(row.first >= 0 && row.first <= row.start && (row.first == row.start ||
              (row.first >= int64_t(held->first_chunk) * kChunkKeys && row.start <= end)),
              "attend_block: tokens " + std::to_string(row.first) + " to " + std::to_string(row.start) + " are not held");
      step.rows.push_back({held, row.start, row.count, row.window, row.first});
    }
    const Kernels& table = kernels();
    const mx::Shape shape{step.inputs[0].shape(0), step.spec->heads * step.spec->dim};
    std::vector<mx::array> inputs = std::move(step.inputs);
    put(res, CpuTask::make("DsparkAttendBlock", shape, std::move(inputs), stream_of(s),
                           [step = std::move(step), mask = BlockMask{causal, windowed}, &table](const auto& in, auto& out) {
                             const std::shared_ptr<Pool> threads = pool();
                             Rows turns;
                             block_attention({table, *threads}, *step.spec, step.rows, mask,
                                             dense_rows(in[0], scratch_of_thread(0)).data, step.rope(in, turns),
                                             out[0].template data<float>());
                           }));
  });
}

DSPARK_API int dspark_cpu_kv_read(
    mlx_array* res,
    dspark_cpu_kv kv,
    const mlx_array after,
    int from,
    int to,
    const mlx_stream s) {
  return guarded([&] {
    const std::shared_ptr<const KvTable> held = static_cast<KvStore*>(kv.ctx)->table();
    const KvShape& shape = held->shape;
    require(shape.format == KvFormat::f32, "kv_read: only float32 stores are read");
    const int end = (held->first_chunk + static_cast<int>(held->chunks.size())) * kChunkKeys;
    require(from >= held->first_chunk * kChunkKeys && from <= to && to <= end,
            "kv_read: tokens " + std::to_string(from) + " to " + std::to_string(to) + " are not held");
    std::vector<mx::array> inputs;
    if (after.ctx != nullptr) {
      inputs.push_back(array_of(after));
    }
    put(res, CpuTask::make("DsparkKvRead", {2, shape.heads, to - from, shape.dim}, std::move(inputs), stream_of(s),
                           [held, from, to](const auto&, auto& out) {
                             const KvShape& shape = held->shape;
                             float* key = out[0].template data<float>();
                             float* value = key + out[0].size() / 2;
                             for (int h = 0; h < shape.heads; h++) {
                               for (int t = from; t < to; t++, key += shape.dim, value += shape.dim) {
                                 read_key_value(*held, t, h, key, value);
                               }
                             }
                           }));
  });
}

DSPARK_API int dspark_cpu_greedy_walk(
    mlx_array* ids,
    mlx_array* features,
    const mlx_array base,
    const mlx_array anchor,
    const dspark_cpu_matrix before,
    const dspark_cpu_matrix after,
    int width,
    const mlx_stream s) {
  return guarded([&] {
    const MatrixPtr from = matrix_of(before), to = matrix_of(after);
    const mx::array& logits = array_of(base);
    const mx::array& first = array_of(anchor);
    require(from->columns == to->columns, "greedy_walk: the matrices have different ranks");
    require(logits.dtype() == mx::float32 && logits.ndim() == 2 && width > 0 && width <= logits.shape(1) && width <= to->rows,
            "greedy_walk: base has shape " + text(logits.shape()) + ", wanted float32 with the " + std::to_string(width) +
                " columns of the walk, of which the matrix has " + std::to_string(to->rows));
    require(first.size() == 1 && (first.dtype() == mx::int32 || first.dtype() == mx::uint32),
            "greedy_walk: the anchor must be one int32 or uint32");
    const Kernels& table = kernels();
    std::vector<mx::array> made = CpuTask::make_two(
        "DsparkGreedyWalk", {logits.shape(0)}, mx::uint32, {logits.shape(0), from->columns}, {logits, first}, stream_of(s),
        [from, to, width, &table](const auto& in, auto& out) {
          const std::shared_ptr<Pool> threads = pool();
          greedy_walk({table, *threads}, rows_of(in[0], scratch_of_thread(0)), width, *in[1].template data<int32_t>(),
                      *from, *to, out[0].template data<uint32_t>(), out[1].template data<float>());
        });
    put(ids, std::move(made[0]));
    put(features, std::move(made[1]));
  });
}
