#include "self_attention.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace dspark::cpu {
namespace {

// Tokens whose queries are prepared at a time: bounds the scratch, whatever the step's length.
constexpr int kTokenBatch = 256;
// Query tiles that go through a chunk of keys together while it is in the cache.
constexpr int kTilesMax = 8;

// `count` tokens of one row, from token `offset` of that row on; `token` counts over the whole step.
struct Segment {
  const AttentionRow* row;
  int offset;
  int count;
  int token;
  // Of a block: its keys and values of each kv head, laid out as in a chunk.
  float* block = nullptr;
};

// Queries [first, last) of one kv head in a segment, counted token by token, head by head.
struct Item {
  const Segment* segment;
  int kv_head;
  int first;
  int last;
};

// `whole`: rows, of at most kTokenBatch tokens, are not divided.
std::vector<std::vector<Segment>> batches_of(const std::vector<AttentionRow>& rows, bool whole) {
  std::vector<std::vector<Segment>> batches(1);
  int room = kTokenBatch;
  int token = 0;
  for (const AttentionRow& row : rows) {
    for (int offset = 0; offset < row.count;) {
      if (room == 0 || (whole && room < row.count)) {
        batches.emplace_back();
        room = kTokenBatch;
      }
      const int count = std::min(row.count - offset, room);
      batches.back().push_back({&row, offset, count, token});
      offset += count;
      token += count;
      room -= count;
    }
  }
  return batches;
}

class Step {
 public:
  // `block`: the rows are blocks; null: they are appended.
  Step(const Context& context, const AttentionSpec& spec, const float* qkv, const float* rope, const BlockMask* block,
       float* out)
      : context_(context), spec_(spec), qkv_(qkv), rope_(rope), mask_(block), out_(out),
        padded_((spec.dim + kLanes - 1) / kLanes * kLanes) {}

  // Keys and values of every token into the stores, from rows that hold nothing else.
  void append(const std::vector<AttentionRow>& rows) const {
    int token = 0;
    for (const AttentionRow& row : rows) {
      const Segment segment{&row, 0, row.count, token};
      context_.pool.run(row.count, kLanes, [&](int begin, int end) {
        for (int i = begin; i < end; i++) {
          put_key_values(segment, i, qkv_ + size_t(token + i) * 2 * spec_.kv_heads * spec_.dim);
        }
      });
      token += row.count;
    }
  }

  void run(std::vector<Segment>& batch, Scratch& scratch) {
    first_token_ = batch.front().token;
    const int tokens = batch.back().token + batch.back().count - first_token_;
    const size_t query_floats = size_t(tokens) * spec_.heads * padded_;
    size_t floats = query_floats;
    for (const Segment& segment : batch) {
      floats += mask_ == nullptr ? 0 : block_head_floats(segment.count) * spec_.kv_heads;
    }
    queries_ = scratch.get<float>(floats);
    float* block = queries_ + query_floats;
    for (Segment& segment : batch) {
      if (mask_ != nullptr) {
        segment.block = block;
        block += block_head_floats(segment.count) * spec_.kv_heads;
      }
      // Whole key blocks at a time, so that threads seldom write to one line.
      context_.pool.run(segment.count, kLanes, [&](int begin, int end) {
        for (int i = begin; i < end; i++) {
          prepare(segment, i);
        }
      });
    }
    const std::vector<Item> items = items_of(batch);
    context_.pool.run(static_cast<int>(items.size()), 1, [&](int begin, int end) {
      for (int i = begin; i < end; i++) {
        attend(items[i]);
      }
    });
  }

 private:
  const float* rope_of(int token) const {
    return rope_ + size_t(token) * spec_.rope_dims;
  }

  // Per-head norm and rotation of dim floats, in place.
  void shape_head(float* x, const std::vector<float>& norm, float eps, int token) const {
    if (!norm.empty()) {
      context_.kernels.rms_norm(x, norm.data(), x, spec_.dim, eps);
    }
    if (spec_.rope_dims > 0) {
      const int half = spec_.rope_dims / 2;
      context_.kernels.rotate(x, rope_of(token), rope_of(token) + half, half, spec_.interleaved);
    }
  }

  size_t block_key_floats(int count) const {
    return size_t((count + kLanes - 1) / kLanes * kLanes) * spec_.dim;
  }
  size_t block_head_floats(int count) const {
    return block_key_floats(count) + size_t(count) * padded_;
  }
  KvSpan block_span(const Segment& segment, int head) const {
    const float* keys = segment.block + block_head_floats(segment.count) * head;
    return {keys, keys + block_key_floats(segment.count), nullptr, nullptr};
  }

  // Queries of one token into scratch, its keys and values into the store or the block.
  void prepare(const Segment& segment, int index) const {
    const int token = segment.token + index;
    const int dim = spec_.dim;
    const float* from = qkv_ + size_t(token) * (spec_.heads + 2 * spec_.kv_heads) * dim;
    float* q = queries_ + size_t(token - first_token_) * spec_.heads * padded_;
    for (int h = 0; h < spec_.heads; h++, q += padded_) {
      std::memcpy(q, from + size_t(h) * dim, sizeof(float) * dim);
      shape_head(q, spec_.q_norm, spec_.q_eps, token);
      for (int d = 0; d < dim; d++) {
        q[d] *= spec_.scale;
      }
      std::fill(q + dim, q + padded_, 0.f);
    }
    put_key_values(segment, index, from + size_t(spec_.heads) * dim);
  }

  // Of one token, from its keys and behind them its values of all kv heads.
  void put_key_values(const Segment& segment, int index, const float* keys) const {
    const int dim = spec_.dim;
    const float* values = keys + size_t(spec_.kv_heads) * dim;
    float key[512];
    for (int h = 0; h < spec_.kv_heads; h++) {
      std::memcpy(key, keys + size_t(h) * dim, sizeof(float) * dim);
      shape_head(key, spec_.k_norm, spec_.k_eps, segment.token + index);
      if (segment.block != nullptr) {
        float* to = segment.block + block_head_floats(segment.count) * h;
        write_float_key_value(dim, padded_, index, to, to + block_key_floats(segment.count), key, values + size_t(h) * dim);
      } else {
        const int64_t position = segment.row->start + segment.offset + index;
        write_key_value(context_.kernels, *segment.row->table, position, h, key, values + size_t(h) * dim);
      }
    }
  }

  std::vector<Item> items_of(const std::vector<Segment>& batch) const {
    const int shared = spec_.heads / spec_.kv_heads;
    int tiles = 0;
    for (const Segment& segment : batch) {
      tiles += (segment.count * shared + kQueriesMax - 1) / kQueriesMax * spec_.kv_heads;
    }
    const int together = std::clamp(tiles / (context_.pool.threads() * 4), 1, kTilesMax) * kQueriesMax;
    std::vector<Item> items;
    for (const Segment& segment : batch) {
      const int queries = segment.count * shared;
      for (int head = 0; head < spec_.kv_heads; head++) {
        for (int first = 0; first < queries; first += together) {
          items.push_back({&segment, head, first, std::min(first + together, queries)});
        }
      }
    }
    return items;
  }

  void attend(const Item& item) const {
    static thread_local Scratch scratch;
    const Segment& segment = *item.segment;
    const AttentionRow& row = *segment.row;
    const int shared = spec_.heads / spec_.kv_heads;
    const int count = item.last - item.first;
    float* values = scratch.get<float>(size_t(count) * padded_ + 2 * count);
    float* maximum = values + size_t(count) * padded_;
    float* total = maximum + count;
    std::fill(values, values + size_t(count) * padded_, 0.f);
    const auto head_of = [&](int i) { return item.kv_head * shared + (item.first + i) % shared; };
    const auto index_of = [&](int i) { return (item.first + i) / shared; };
    const auto position_of = [&](int i) { return row.start + segment.offset + index_of(i); };
    for (int i = 0; i < count; i++) {
      const bool sink = !spec_.sinks.empty();
      maximum[i] = sink ? spec_.sinks[head_of(i)] : -std::numeric_limits<float>::infinity();
      total[i] = sink ? 1.f : 0.f;
    }
    // Tokens [first_seen, end_seen) of the store, by absolute position.
    const auto first_seen = [&](int i) {
      const int64_t position = position_of(i);
      return row.window > 0 ? std::max(row.first, position - row.window + 1) : row.first;
    };
    const auto end_seen = [&](int i) { return mask_ == nullptr ? position_of(i) + 1 : row.start; };
    AttentionTile tile{};
    tile.dim = spec_.dim;
    tile.padded = padded_;
    tile.soft_cap = spec_.soft_cap;
    // All queries against one chunk, whose first key is token `base`; query i sees tokens [first_of(i), end_of(i)).
    const auto meet = [&](int64_t base, const auto& first_of, const auto& end_of) {
      for (int start = 0; start < count; start += kQueriesMax) {
        const float* q[kQueriesMax];
        float* sums[kQueriesMax];
        int first[kQueriesMax], last[kQueriesMax];
        tile.queries = std::min(kQueriesMax, count - start);
        bool seen = false;
        for (int t = 0; t < tile.queries; t++) {
          const int i = start + t;
          const int token = segment.token - first_token_ + index_of(i);
          q[t] = queries_ + (size_t(token) * spec_.heads + head_of(i)) * padded_;
          sums[t] = values + size_t(i) * padded_;
          first[t] = static_cast<int>(std::clamp<int64_t>(first_of(i) - base, 0, kChunkKeys));
          last[t] = static_cast<int>(std::clamp<int64_t>(end_of(i) - base, 0, kChunkKeys));
          seen = seen || first[t] < last[t];
        }
        if (!seen) {
          continue;
        }
        tile.q = q;
        tile.first = first;
        tile.last = last;
        tile.maximum = maximum + start;
        tile.total = total + start;
        tile.values = sums;
        context_.kernels.attend(tile);
      }
    };
    const int chunk_end = static_cast<int>((end_seen(count - 1) + kChunkKeys - 1) / kChunkKeys);
    for (int chunk = static_cast<int>(first_seen(0) / kChunkKeys); chunk < chunk_end; chunk++) {
      tile.group = row.table->shape.group;
      tile.format = row.table->shape.format;
      tile.span = row.table->span(chunk, item.kv_head);
      meet(int64_t(chunk) * kChunkKeys, first_seen, end_seen);
    }
    if (mask_ != nullptr) {
      tile.format = KvFormat::f32;
      tile.span = block_span(segment, item.kv_head);
      meet(
          row.start, [&](int i) { return mask_->windowed ? std::max(first_seen(i), row.start) : row.start; },
          [&](int i) { return mask_->causal ? position_of(i) + 1 : row.start + segment.count; });
    }
    for (int i = 0; i < count; i++) {
      const float inverse = 1.f / total[i];
      float* to = out_ + (size_t(segment.token + index_of(i)) * spec_.heads + head_of(i)) * spec_.dim;
      for (int d = 0; d < spec_.dim; d++) {
        to[d] = values[size_t(i) * padded_ + d] * inverse;
      }
    }
  }

  const Context& context_;
  const AttentionSpec& spec_;
  const float* qkv_;
  const float* rope_;
  const BlockMask* mask_;
  float* out_;
  const int padded_;
  int first_token_ = 0;
  float* queries_ = nullptr;
};

void run_step(Step&& step, std::vector<std::vector<Segment>>&& batches) {
  static thread_local Scratch scratch;
  for (std::vector<Segment>& batch : batches) {
    if (!batch.empty()) {
      step.run(batch, scratch);
    }
  }
}

} // namespace

void self_attention(const Context& context, const AttentionSpec& spec, const std::vector<AttentionRow>& rows,
                    const float* qkv, const float* rope, float* out) {
  run_step({context, spec, qkv, rope, nullptr, out}, batches_of(rows, false));
}

void append_keys_values(const Context& context, const AttentionSpec& spec, const std::vector<AttentionRow>& rows,
                        const float* kv, const float* rope) {
  Step(context, spec, kv, rope, nullptr, nullptr).append(rows);
}

void block_attention(const Context& context, const AttentionSpec& spec, const std::vector<AttentionRow>& rows,
                     const BlockMask& mask, const float* qkv, const float* rope, float* out) {
  run_step({context, spec, qkv, rope, &mask, out}, batches_of(rows, true));
}

} // namespace dspark::cpu
