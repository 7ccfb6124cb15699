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
};

// Queries [first, last) of one kv head in a segment, counted token by token, head by head.
struct Item {
  const Segment* segment;
  int kv_head;
  int first;
  int last;
};

std::vector<std::vector<Segment>> batches_of(const std::vector<AttentionRow>& rows) {
  std::vector<std::vector<Segment>> batches(1);
  int room = kTokenBatch;
  int token = 0;
  for (const AttentionRow& row : rows) {
    for (int offset = 0; offset < row.count;) {
      if (room == 0) {
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
  Step(const Context& context, const AttentionSpec& spec, const float* qkv, const float* rope, float* out)
      : context_(context), spec_(spec), qkv_(qkv), rope_(rope), out_(out), padded_((spec.dim + kLanes - 1) / kLanes * kLanes) {}

  void run(const std::vector<Segment>& batch, Scratch& scratch) {
    first_token_ = batch.front().token;
    const int tokens = batch.back().token + batch.back().count - first_token_;
    queries_ = scratch.get<float>(size_t(tokens) * spec_.heads * padded_);
    for (const Segment& segment : batch) {
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

  // Queries of one token into scratch, its keys and values into the store.
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
    const float* keys = from + size_t(spec_.heads) * dim;
    const float* values = keys + size_t(spec_.kv_heads) * dim;
    float key[512];
    for (int h = 0; h < spec_.kv_heads; h++) {
      std::memcpy(key, keys + size_t(h) * dim, sizeof(float) * dim);
      shape_head(key, spec_.k_norm, spec_.k_eps, token);
      const int64_t position = segment.row->start + segment.offset + index;
      write_key_value(context_.kernels, *segment.row->table, position, h, key, values + size_t(h) * dim);
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
    const auto first_seen = [&](int i) {
      const int64_t position = position_of(i);
      return row.window > 0 && position >= row.window ? position - row.window + 1 : 0;
    };
    const int chunk_end = static_cast<int>(position_of(count - 1) / kChunkKeys) + 1;
    for (int chunk = static_cast<int>(first_seen(0) / kChunkKeys); chunk < chunk_end; chunk++) {
      const int64_t base = int64_t(chunk) * kChunkKeys;
      AttentionTile tile{};
      tile.dim = spec_.dim;
      tile.padded = padded_;
      tile.group = row.table->shape.group;
      tile.format = row.table->shape.format;
      tile.soft_cap = spec_.soft_cap;
      tile.span = row.table->span(chunk, item.kv_head);
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
          first[t] = static_cast<int>(std::clamp<int64_t>(first_seen(i) - base, 0, kChunkKeys));
          last[t] = static_cast<int>(std::clamp<int64_t>(position_of(i) + 1 - base, 0, kChunkKeys));
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
  float* out_;
  const int padded_;
  int first_token_ = 0;
  float* queries_ = nullptr;
};

} // namespace

void self_attention(const Context& context, const AttentionSpec& spec, const std::vector<AttentionRow>& rows,
                    const float* qkv, const float* rope, float* out) {
  static thread_local Scratch scratch;
  Step step(context, spec, qkv, rope, out);
  for (const std::vector<Segment>& batch : batches_of(rows)) {
    if (!batch.empty()) {
      step.run(batch, scratch);
    }
  }
}

} // namespace dspark::cpu
