// Matrices, norms and embeddings of dspark_cpu.h. What can be wrong is checked when an array is made, so that evaluating it
// cannot fail.
#include <limits>

#include "cpu_border.h"

using namespace dspark::border;

namespace {

// Rows whose inner values a feed-forward block holds at a time.
constexpr int kInnerRows = 64;

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
