// Rotation, caches and attention of dspark_cpu.h, checked as in dspark_cpu.cpp.
#include "cpu_border.h"

using namespace dspark::border;

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
