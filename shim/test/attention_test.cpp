// Attention over chunked keys and values: near the exact result; the same bits however a prompt is cut, whatever rows
// share the step, on every instruction set; later rows' NaNs never reach earlier ones; forks and forgotten chunks.
#include <algorithm>
#include <limits>

#include "check.h"
#include "self_attention.h"

namespace {

using namespace dspark::cpu;
using namespace dspark::test;

struct Case {
  std::string name;
  AttentionSpec spec;
  KvFormat format = KvFormat::f32;
  int group = 0;
  int64_t window = 0;
  int tokens = 40;
};

int width(const AttentionSpec& spec) {
  return (spec.heads + 2 * spec.kv_heads) * spec.dim;
}

std::vector<float> ropes(const AttentionSpec& spec, int from, int count) {
  std::vector<int32_t> positions(count);
  std::vector<double> inverse(spec.rope_dims / 2);
  for (int i = 0; i < count; i++) {
    positions[i] = from + i;
  }
  for (size_t j = 0; j < inverse.size(); j++) {
    inverse[j] = 1.0 / (1.0 + 3.0 * static_cast<double>(j));
  }
  std::vector<float> table(size_t(count) * spec.rope_dims);
  rope_table(positions.data(), count, inverse.data(), spec.rope_dims / 2, 1, table.data());
  return table;
}

// Feeds `count` tokens from `from` on to a store.
std::vector<float> feed(const Context& context, const Case& c, KvStore& store, const std::vector<float>& qkv, int from,
                        int count) {
  std::vector<float> out(size_t(count) * c.spec.heads * c.spec.dim);
  const std::vector<float> rope = ropes(c.spec, from, count);
  self_attention(context, c.spec, {{store.writable(from, from + count), from, count, c.window}},
                 qkv.data() + size_t(from) * width(c.spec), rope.data(), out.data());
  return out;
}

std::vector<float> feed_in_pieces(const Context& context, const Case& c, const std::vector<float>& qkv, int piece) {
  KvStore store({c.spec.kv_heads, c.spec.dim, c.format, c.group});
  std::vector<float> all;
  for (int from = 0; from < c.tokens; from += piece) {
    const int count = std::min(piece, c.tokens - from);
    const std::vector<float> part = feed(context, c, store, qkv, from, count);
    all.insert(all.end(), part.begin(), part.end());
    if (c.window > 0) {
      store.forget_before(from + count - c.window);
    }
  }
  return all;
}

// In double precision, from the definitions.
std::vector<double> exact(const Case& c, const std::vector<float>& qkv) {
  const AttentionSpec& spec = c.spec;
  const int dim = spec.dim;
  std::vector<double> out(size_t(c.tokens) * spec.heads * dim);
  const std::vector<float> rope = ropes(spec, 0, c.tokens);
  const auto head = [&](int token, int index, const std::vector<float>& norm, float eps, bool rotated) {
    const float* from = qkv.data() + size_t(token) * width(spec) + size_t(index) * dim;
    std::vector<double> x(from, from + dim);
    if (!norm.empty()) {
      double squares = 0;
      for (const double v : x) {
        squares += v * v;
      }
      for (int d = 0; d < dim; d++) {
        x[d] *= norm[d] / std::sqrt(squares / dim + eps);
      }
    }
    const int half = rotated ? spec.rope_dims / 2 : 0;
    for (int j = 0; j < half; j++) {
      const double cosine = rope[size_t(token) * spec.rope_dims + j];
      const double sine = rope[size_t(token) * spec.rope_dims + half + j];
      double& a = x[spec.interleaved ? 2 * j : j];
      double& b = x[spec.interleaved ? 2 * j + 1 : j + half];
      const double old = a;
      a = old * cosine - b * sine;
      b = b * cosine + old * sine;
    }
    return x;
  };
  for (int h = 0; h < spec.heads; h++) {
    const int kv = h / (spec.heads / spec.kv_heads);
    std::vector<std::vector<double>> keys, values;
    for (int t = 0; t < c.tokens; t++) {
      keys.push_back(head(t, spec.heads + kv, spec.k_norm, spec.k_eps, true));
      values.push_back(head(t, spec.heads + spec.kv_heads + kv, {}, 0, false));
      const std::vector<double> q = head(t, h, spec.q_norm, spec.q_eps, true);
      const int first = c.window > 0 && t >= c.window ? static_cast<int>(t - c.window + 1) : 0;
      std::vector<double> scores;
      double best = spec.sinks.empty() ? -1e300 : spec.sinks[h];
      for (int j = first; j <= t; j++) {
        double score = 0;
        for (int d = 0; d < dim; d++) {
          score += q[d] * spec.scale * keys[j][d];
        }
        if (spec.soft_cap > 0) {
          score = spec.soft_cap * std::tanh(score / spec.soft_cap);
        }
        scores.push_back(score);
        best = std::max(best, score);
      }
      double total = spec.sinks.empty() ? 0 : std::exp(spec.sinks[h] - best);
      for (double& score : scores) {
        score = std::exp(score - best);
        total += score;
      }
      for (int j = first; j <= t; j++) {
        for (int d = 0; d < dim; d++) {
          out[(size_t(t) * spec.heads + h) * dim + d] += scores[j - first] / total * values[j][d];
        }
      }
    }
  }
  return out;
}

void hold(const Case& c, std::mt19937& random, Hash& hash) {
  const std::vector<float> qkv = bells(random, size_t(c.tokens) * width(c.spec));
  Pool one(1), three(3);
  const std::vector<float> whole = feed_in_pieces({*tables().front(), one}, c, qkv, c.tokens);
  const std::vector<double> wanted = exact(c, qkv);
  double worst = 0;
  for (size_t i = 0; i < whole.size(); i++) {
    const double off = std::fabs(whole[i] - wanted[i]);
    worst = off > worst || std::isnan(off) ? off : worst;
  }
  const double limit = c.format == KvFormat::f32 ? 2e-5 : c.format == KvFormat::f16 ? 1e-2 : c.format == KvFormat::q8 ? 8e-2 : 0.8;
  check(worst < limit, c.name + ": off by " + std::to_string(worst));
  for (const Kernels* kernels : tables()) {
    for (const int piece : {1, 3, 7, 32, c.tokens}) {
      check(same_bits(feed_in_pieces({*kernels, three}, c, qkv, piece), whole),
            c.name + " on " + kernels->name + " in pieces of " + std::to_string(piece));
    }
  }
  hash.add(whole);
}

AttentionSpec heads(int count, int kv_heads, int dim, int rope_dims) {
  AttentionSpec spec;
  spec.heads = count;
  spec.kv_heads = kv_heads;
  spec.dim = dim;
  spec.scale = 1.f / std::sqrt(static_cast<float>(dim));
  spec.rope_dims = rope_dims;
  return spec;
}

std::vector<Case> cases(std::mt19937& random) {
  std::vector<Case> all;
  for (const int dim : {8, 24, 32, 40, 64, 80, 96, 128, 192, 256}) {
    all.push_back({"dim " + std::to_string(dim), heads(4, 2, dim, dim)});
  }
  all.push_back({"three heads share, long", heads(9, 3, 64, 64), KvFormat::f32, 0, 0, 600});
  all.push_back({"seven heads share", heads(7, 1, 32, 16)});
  all.push_back({"no rotation", heads(2, 2, 32, 0)});
  all.push_back({"window", heads(4, 2, 32, 32), KvFormat::f32, 0, 9, 100});
  all.push_back({"window over chunks", heads(2, 1, 16, 16), KvFormat::f32, 0, 300, 900});
  all.push_back({"f16", heads(4, 2, 40, 40), KvFormat::f16, 0, 0, 300});
  all.push_back({"q8", heads(4, 2, 64, 64), KvFormat::q8, 32, 0, 300});
  all.push_back({"q8, one group", heads(4, 2, 64, 64), KvFormat::q8, 64, 20, 90});
  all.push_back({"q4", heads(4, 2, 64, 64), KvFormat::q4, 32, 0, 300});
  all.push_back({"q4, one group", heads(4, 2, 96, 64), KvFormat::q4, 96, 20, 90});
  Case interleaved{"interleaved", heads(4, 4, 32, 24)};
  interleaved.spec.interleaved = true;
  all.push_back(interleaved);
  Case normed{"norms", heads(4, 2, 32, 32)};
  normed.spec.q_norm = bells(random, 32);
  normed.spec.k_norm = bells(random, 32);
  normed.spec.q_eps = normed.spec.k_eps = 1e-6f;
  all.push_back(normed);
  Case capped{"soft cap", heads(4, 2, 32, 32)};
  capped.spec.soft_cap = 2;
  all.push_back(capped);
  Case sinks{"sinks", heads(4, 2, 32, 32)};
  sinks.spec.sinks = bells(random, 4);
  sinks.window = 5;
  all.push_back(sinks);
  return all;
}

// Several sequences in one step equal each alone.
void hold_ragged(std::mt19937& random) {
  Case c{"ragged", heads(6, 2, 32, 32)};
  c.tokens = 300;
  Pool two(2);
  const Context context{*tables().back(), two};
  const KvShape shape{c.spec.kv_heads, c.spec.dim, KvFormat::f32, 0};
  const int before[] = {0, 290, 37}, counts[] = {300, 1, 5};
  std::vector<std::unique_ptr<KvStore>> stores;
  std::vector<AttentionRow> rows;
  std::vector<float> joined, rope, wanted;
  for (int r = 0; r < 3; r++) {
    const int end = before[r] + counts[r];
    const std::vector<float> qkv = bells(random, size_t(end) * width(c.spec));
    KvStore alone(shape);
    stores.push_back(std::make_unique<KvStore>(shape));
    if (before[r] > 0) {
      feed(context, c, alone, qkv, 0, before[r]);
      feed(context, c, *stores.back(), qkv, 0, before[r]);
    }
    const std::vector<float> out = feed(context, c, alone, qkv, before[r], counts[r]);
    wanted.insert(wanted.end(), out.begin(), out.end());
    joined.insert(joined.end(), qkv.begin() + size_t(before[r]) * width(c.spec), qkv.end());
    const std::vector<float> table = ropes(c.spec, before[r], counts[r]);
    rope.insert(rope.end(), table.begin(), table.end());
    rows.push_back({stores.back()->writable(before[r], end), before[r], counts[r], 0});
  }
  std::vector<float> out(wanted.size());
  self_attention(context, c.spec, rows, joined.data(), rope.data(), out.data());
  check(same_bits(out, wanted), "rows of one step equal rows alone");
}

// A NaN in token 20 leaves tokens before it as they were and shows in those after it.
void hold_nan(std::mt19937& random) {
  Case c{"nan", heads(4, 2, 32, 32)};
  Pool one(1);
  std::vector<float> qkv = bells(random, size_t(c.tokens) * width(c.spec));
  for (const Kernels* kernels : tables()) {
    const Context context{*kernels, one};
    const std::vector<float> clean = feed_in_pieces(context, c, qkv, c.tokens);
    std::vector<float> spoiled = qkv;
    for (int i = 0; i < width(c.spec); i++) {
      spoiled[size_t(20) * width(c.spec) + i] = std::numeric_limits<float>::quiet_NaN();
    }
    const std::vector<float> out = feed_in_pieces(context, c, spoiled, c.tokens);
    const auto border = static_cast<long>(20) * c.spec.heads * c.spec.dim;
    check(same_bits({out.begin(), out.begin() + border}, {clean.begin(), clean.begin() + border}), "a later NaN reached back");
    check(std::all_of(out.begin() + border, out.end(), [](float v) { return std::isnan(v); }), "a NaN was lost");
  }
}

void hold_rollback_and_forks(std::mt19937& random) {
  Case c{"fork", heads(4, 2, 32, 32)};
  c.tokens = 400;
  Pool one(1);
  const Context context{*tables().back(), one};
  const std::vector<float> a = bells(random, size_t(c.tokens) * width(c.spec));
  std::vector<float> b = a;
  const std::vector<float> other = bells(random, size_t(100) * width(c.spec));
  std::copy(other.begin(), other.end(), b.begin() + size_t(300) * width(c.spec));
  const KvShape shape{c.spec.kv_heads, c.spec.dim, KvFormat::f32, 0};
  KvStore first(shape);
  feed(context, c, first, a, 0, 300);
  const std::unique_ptr<KvStore> twin = first.fork();
  const std::vector<float> of_a = feed(context, c, first, a, 300, 100);
  const std::vector<float> of_b = feed(context, c, *twin, b, 300, 100);
  KvStore fresh_a(shape), fresh_b(shape);
  feed(context, c, fresh_a, a, 0, 300);
  feed(context, c, fresh_b, b, 0, 300);
  check(same_bits(of_a, feed(context, c, fresh_a, a, 300, 100)), "the forked store goes on as before");
  check(same_bits(of_b, feed(context, c, fresh_b, b, 300, 100)), "the fork goes its own way");
  // Rolling back: the tokens from 350 on are written over.
  feed(context, c, fresh_a, b, 300, 100);
  check(same_bits(feed(context, c, fresh_a, a, 300, 100), of_a), "after a rollback nothing of the rejected rows is left");
  bool refused = false;
  first.forget_before(300);
  try {
    first.writable(10, 20);
  } catch (const std::out_of_range&) {
    refused = true;
  }
  check(refused, "forgotten tokens are refused");
}

} // namespace

int main() {
  std::mt19937 random(11);
  Hash hash;
  for (const Case& c : cases(random)) {
    hold(c, random, hash);
  }
  hold_ragged(random);
  hold_nan(random);
  hold_rollback_and_forks(random);
  std::printf("hash %016llx\n", static_cast<unsigned long long>(hash.value()));
  return report("attention");
}
