// Rotation, append and attention of the rows of one step, from the joined projections q|k|v.
#pragma once

#include <memory>
#include <vector>

#include "kv_store.h"
#include "linear.h"

namespace dspark::cpu {

struct AttentionSpec {
  int heads = 0;
  int kv_heads = 0;
  int dim = 0;
  float scale = 1;
  int rope_dims = 0; // 0: no rotation
  bool interleaved = false;
  std::vector<float> q_norm; // empty, or [dim]
  std::vector<float> k_norm;
  float q_eps = 0;
  float k_eps = 0;
  float soft_cap = 0; // 0: none
  std::vector<float> sinks; // empty, or [heads]: a score that takes part in the sum alone
};

// One sequence's part of a step: its `count` next tokens from position `start` on.
struct AttentionRow {
  std::shared_ptr<const KvTable> table;
  int64_t start = 0;
  int count = 0;
  int64_t window = 0; // tokens that a query sees, itself included; 0: all
  int64_t first = 0; // no query sees a token before it
};

// Which slots of its own block a query sees.
struct BlockMask {
  bool causal = false; // none behind itself
  bool windowed = false; // none before its window, as of the tokens before the block
};

// qkv [tokens, (heads + 2·kv_heads)·dim]; rope [tokens, rope_dims]: cosines, then sines; out [tokens, heads·dim].
void self_attention(const Context& context, const AttentionSpec& spec, const std::vector<AttentionRow>& rows,
                    const float* qkv, const float* rope, float* out);

// The keys and values alone, from kv [tokens, 2·kv_heads·dim].
void append_keys_values(const Context& context, const AttentionSpec& spec, const std::vector<AttentionRow>& rows,
                        const float* kv, const float* rope);

// Each row's tokens as a block behind the tokens [0, start) that its table holds: queries see those, and the block by
// `mask`. Nothing is appended. A row has at most kChunkKeys tokens. Shapes as for self_attention.
void block_attention(const Context& context, const AttentionSpec& spec, const std::vector<AttentionRow>& rows,
                     const BlockMask& mask, const float* qkv, const float* rope, float* out);

// Cosines and sines of position · inverse[j] for each position, times `magnitude`: [count, 2·half]. In double precision
// with our own polynomials, so that every machine gives the same table.
void rope_table(const int32_t* positions, int count, const double* inverse, int half, double magnitude, float* out);

} // namespace dspark::cpu
