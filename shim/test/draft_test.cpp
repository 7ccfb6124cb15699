// What only drafters use: keys and values appended alone, blocks that are attended and not stored, the greedy walk. A
// causal block that begins where a chunk does has the bits of the same tokens as a step; rows that share a call have
// their own; tokens rolled back are never seen; threads and instruction sets agree.
#include <algorithm>
#include <limits>

#include "check.h"
#include "self_attention.h"

namespace {

using namespace dspark::cpu;
using namespace dspark::test;

AttentionSpec some_spec(std::mt19937& random, int heads, int kv_heads, int dim) {
  AttentionSpec spec;
  spec.heads = heads;
  spec.kv_heads = kv_heads;
  spec.dim = dim;
  spec.scale = 1.f / std::sqrt(static_cast<float>(dim));
  spec.rope_dims = dim;
  spec.q_norm = bells(random, dim);
  spec.k_norm = bells(random, dim);
  spec.q_eps = spec.k_eps = 1e-6f;
  spec.sinks = bells(random, heads);
  return spec;
}

// One sequence: projections and rotations of all its tokens.
struct Sequence {
  const AttentionSpec& spec;
  std::vector<float> qkv;
  std::vector<float> rope;

  Sequence(std::mt19937& random, const AttentionSpec& given, int tokens)
      : spec(given), qkv(bells(random, size_t(tokens) * width())), rope(bells(random, size_t(tokens) * given.rope_dims)) {}
  int width() const {
    return (spec.heads + 2 * spec.kv_heads) * spec.dim;
  }
  // Keys and values of tokens [0, count) into the store, in pieces.
  void append(const Context& context, KvStore& store, int count, int piece) const {
    const int kv = 2 * spec.kv_heads * spec.dim;
    for (int from = 0; from < count; from += piece) {
      const int n = std::min(piece, count - from);
      std::vector<float> part;
      for (int t = from; t < from + n; t++) {
        const float* end = qkv.data() + size_t(t + 1) * width();
        part.insert(part.end(), end - kv, end);
      }
      append_keys_values(context, spec, {{store.writable(from, from + n), from, n}}, part.data(),
                         rope.data() + size_t(from) * spec.rope_dims);
    }
  }
  std::vector<float> block(const Context& context, const KvStore& store, int start, int count, int window, BlockMask mask) const {
    std::vector<float> out(size_t(count) * spec.heads * spec.dim);
    block_attention(context, spec, {{store.table(), start, count, window}}, mask, qkv.data() + size_t(start) * width(),
                    rope.data() + size_t(start) * spec.rope_dims, out.data());
    return out;
  }
};

void hold_blocks(std::mt19937& random, int start, int count, int window) {
  const std::string name = "a block of " + std::to_string(count) + " behind " + std::to_string(start) + " tokens, window " +
                           std::to_string(window);
  const AttentionSpec spec = some_spec(random, 6, 2, 40);
  const Sequence sequence(random, spec, start + count + 3);
  Pool one(1), three(3);
  for (const Kernels* kernels : tables()) {
    KvStore store({spec.kv_heads, spec.dim, KvFormat::f32, 0});
    sequence.append({*kernels, three}, store, start, 100);
    const std::unique_ptr<KvStore> twin = store.fork();
    std::vector<float> wanted(size_t(count) * spec.heads * spec.dim);
    self_attention({*kernels, one}, spec, {{twin->writable(start, start + count), start, count, window}},
                   sequence.qkv.data() + size_t(start) * sequence.width(), sequence.rope.data() + size_t(start) * spec.rope_dims,
                   wanted.data());
    check(same_bits(sequence.block({*kernels, three}, store, start, count, window, {true, true}), wanted),
          name + " is a step, on " + kernels->name);
    const std::vector<float> open = sequence.block({*tables().front(), one}, store, start, count, window, {false, false});
    check(!same_bits(open, wanted) || count == 1, name + " sees itself as a whole");
    // What was appended behind the context and rolled back again stays unseen.
    std::vector<float> poison(size_t(2) * spec.kv_heads * spec.dim, std::numeric_limits<float>::quiet_NaN());
    append_keys_values({*kernels, one}, spec, {{store.writable(start, start + 1), start, 1}}, poison.data(),
                       sequence.rope.data() + size_t(start) * spec.rope_dims);
    check(same_bits(sequence.block({*kernels, three}, store, start, count, window, {false, false}), open),
          name + ", open, on " + kernels->name);
  }
}

// Blocks of several sequences in one call, more tokens than are prepared at a time.
void hold_rows(std::mt19937& random) {
  const AttentionSpec spec = some_spec(random, 4, 4, 16);
  Pool two(2);
  const Context context{*tables().back(), two};
  const std::vector<std::pair<int, int>> shapes{{300, 200}, {0, 100}, {256, 1}, {7, 256}};
  std::vector<Sequence> sequences;
  std::vector<std::unique_ptr<KvStore>> stores;
  std::vector<AttentionRow> rows;
  std::vector<float> qkv, rope, alone;
  for (const auto& [start, count] : shapes) {
    const Sequence& sequence = sequences.emplace_back(random, spec, start + count);
    stores.push_back(std::make_unique<KvStore>(KvShape{spec.kv_heads, spec.dim, KvFormat::f32, 0}));
    sequence.append(context, *stores.back(), start, 64);
    rows.push_back({stores.back()->table(), start, count});
    qkv.insert(qkv.end(), sequence.qkv.begin() + size_t(start) * sequence.width(), sequence.qkv.end());
    rope.insert(rope.end(), sequence.rope.begin() + size_t(start) * spec.rope_dims, sequence.rope.end());
    const std::vector<float> part = sequence.block(context, *stores.back(), start, count, 0, {});
    alone.insert(alone.end(), part.begin(), part.end());
  }
  std::vector<float> together(alone.size());
  block_attention(context, spec, rows, {}, qkv.data(), rope.data(), together.data());
  check(same_bits(together, alone), "blocks of several sequences");
}

Matrix plain(Pool& pool, const std::vector<float>& values, int rows, int columns) {
  Source source;
  source.weight = values.data();
  source.rows = rows;
  source.columns = columns;
  return pack(source, pool);
}

void hold_walk(std::mt19937& random, int ids, int width, int rank) {
  Pool one(1), three(3);
  const int count = 5;
  const Matrix before = plain(one, bells(random, size_t(ids) * rank), ids, rank);
  const Matrix after = plain(one, bells(random, size_t(ids) * rank), ids, rank);
  const std::vector<float> base = bells(random, size_t(count) * ids);
  const int32_t anchor = ids + 3; // counts as 0
  std::vector<uint32_t> wanted;
  for (const Kernels* kernels : tables()) {
    for (Pool* pool : {&one, &three}) {
      const Context context{*kernels, *pool};
      std::vector<uint32_t> found(count);
      std::vector<float> features(size_t(count) * rank), row(rank), sums(ids);
      greedy_walk(context, {base.data(), static_cast<size_t>(ids), count}, width, anchor, before, after, found.data(),
                  features.data());
      int32_t id = 0;
      bool best = true;
      for (int i = 0; i < count; i++) {
        unpack_row(before, id, row.data());
        multiply(context, {row.data(), static_cast<size_t>(rank), 1}, nullptr, {&after, nullptr, nullptr}, sums.data());
        for (int n = 0; n < ids; n++) {
          sums[n] = base[size_t(i) * ids + n] + sums[n];
        }
        id = static_cast<int32_t>(std::max_element(sums.begin(), sums.begin() + width) - sums.begin());
        best = best && found[i] == static_cast<uint32_t>(id) &&
               std::equal(row.begin(), row.end(), features.begin() + size_t(i) * rank);
      }
      check(best, "the walk over " + std::to_string(width) + " of " + std::to_string(ids) + " ids on " + kernels->name);
      wanted = wanted.empty() ? found : wanted;
      check(found == wanted, std::string("the walk's bits on ") + kernels->name);
    }
  }
}

} // namespace

int main() {
  std::mt19937 random(20260801);
  for (const int start : {0, 256, 768}) {
    for (const int count : {1, 6, 40}) {
      for (const int window : {0, 4, 300}) {
        hold_blocks(random, start, count, window);
      }
    }
  }
  hold_rows(random);
  hold_walk(random, 7, 7, 3);
  hold_walk(random, 1000, 983, 16);
  hold_walk(random, 9000, 9000, 5);
  return report("draft");
}
