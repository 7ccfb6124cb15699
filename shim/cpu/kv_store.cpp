#include "kv_store.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace dspark::cpu {
namespace {

struct Quantized {
  float scale;
  float bias;
};

// MLX's affine rule: the end of the range that is larger in magnitude is met, and zero is a whole step away.
Quantized quantize_group(const float* x, int n, float top, uint8_t* codes) {
  constexpr float kScaleMin = 1e-7f;
  float low = x[0], high = x[0];
  for (int i = 1; i < n; i++) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  const bool low_is_edge = std::fabs(low) > std::fabs(high);
  float scale = std::max((high - low) / top, kScaleMin);
  scale = low_is_edge ? scale : -scale;
  const float edge = low_is_edge ? low : high;
  const float steps = std::nearbyint(edge / scale);
  float bias = 0;
  if (steps != 0) {
    scale = edge / steps;
    bias = edge;
  }
  for (int i = 0; i < n; i++) {
    // The comparisons send a NaN to 0: a conversion of one is undefined.
    const float q = std::nearbyint((x[i] - bias) / scale);
    codes[i] = static_cast<uint8_t>(q > 0 ? (q < top ? q : top) : 0);
  }
  return {scale, bias};
}

} // namespace

KvSpan KvTable::span(int chunk, int index) const {
  const unsigned char* at = head(chunk, index);
  const unsigned char* values = at + shape.key_bytes();
  const unsigned char* parameters = values + shape.value_bytes();
  return {at, values, reinterpret_cast<const float*>(parameters),
          reinterpret_cast<const float*>(parameters + shape.parameter_bytes())};
}

KvStore::KvStore(const KvShape& shape) {
  if (shape.heads <= 0 || shape.dim <= 0 || shape.dim > 512) {
    throw std::invalid_argument("keys and values: head dimension " + std::to_string(shape.dim) + " is not from 1 to 512");
  }
  if (is_quantized(shape.format) && (shape.group % 32 != 0 || shape.group <= 0 || shape.dim % shape.group != 0)) {
    throw std::invalid_argument("keys and values: groups of " + std::to_string(shape.group) +
                                " do not divide the head dimension " + std::to_string(shape.dim) +
                                " in multiples of 32");
  }
  auto table = std::make_shared<KvTable>();
  table->shape = shape;
  table_ = std::move(table);
}

KvStore::~KvStore() {
  for (const auto& chunk : table_->chunks) {
    chunk->owners--;
  }
}

std::shared_ptr<const KvTable> KvStore::writable(int64_t from, int64_t to) {
  const KvTable& old = *table_;
  const int first = static_cast<int>(from / kChunkKeys);
  const int end = static_cast<int>((to + kChunkKeys - 1) / kChunkKeys);
  if (from < 0 || first < old.first_chunk || first > old.first_chunk + static_cast<int>(old.chunks.size())) {
    throw std::out_of_range("keys and values: token " + std::to_string(from) + " is not held");
  }
  const int held = old.first_chunk + static_cast<int>(old.chunks.size());
  bool stays = end <= held;
  for (int chunk = first; stays && chunk < end; chunk++) {
    stays = old.chunks[chunk - old.first_chunk]->owners.load() == 1;
  }
  if (stays) {
    return table_;
  }
  auto next = std::make_shared<KvTable>(old);
  const size_t bytes = old.shape.head_bytes() * old.shape.heads;
  for (int chunk = first; chunk < end; chunk++) {
    const size_t at = chunk - old.first_chunk;
    if (at == next->chunks.size()) {
      next->chunks.push_back(std::make_shared<KvChunk>(bytes));
    } else if (next->chunks[at]->owners.load() > 1) {
      auto copy = std::make_shared<KvChunk>(bytes);
      std::memcpy(copy->data.data(), next->chunks[at]->data.data(), bytes);
      next->chunks[at]->owners--;
      next->chunks[at] = std::move(copy);
    }
  }
  table_ = std::move(next);
  return table_;
}

void KvStore::forget_before(int64_t token) {
  const int count = static_cast<int>(token / kChunkKeys) - table_->first_chunk;
  if (count <= 0) {
    return;
  }
  auto next = std::make_shared<KvTable>(*table_);
  const size_t gone = std::min<size_t>(count, next->chunks.size());
  for (size_t i = 0; i < gone; i++) {
    next->chunks[i]->owners--;
  }
  next->chunks.erase(next->chunks.begin(), next->chunks.begin() + gone);
  next->first_chunk += static_cast<int>(gone);
  table_ = std::move(next);
}

std::unique_ptr<KvStore> KvStore::fork() const {
  std::unique_ptr<KvStore> twin(new KvStore());
  twin->table_ = table_;
  for (const auto& chunk : table_->chunks) {
    chunk->owners++;
  }
  return twin;
}

size_t KvStore::bytes() const {
  return table_->chunks.size() * table_->shape.head_bytes() * table_->shape.heads;
}

void write_key_value(const Kernels& kernels, const KvTable& table, int64_t token, int head, const float* key,
                     const float* value) {
  const KvShape& shape = table.shape;
  const int at = static_cast<int>(token % kChunkKeys);
  const int lane = at % kLanes;
  unsigned char* keys = table.head(static_cast<int>(token / kChunkKeys), head);
  unsigned char* values = keys + shape.key_bytes();
  const size_t block = size_t(at / kLanes) * shape.dim * kLanes;
  switch (shape.format) {
    case KvFormat::f32:
      return write_float_key_value(shape.dim, shape.padded(), at, reinterpret_cast<float*>(keys),
                                   reinterpret_cast<float*>(values), key, value);
    case KvFormat::f16: {
      uint16_t narrow[512];
      kernels.narrow(key, narrow, shape.dim);
      uint16_t* to = reinterpret_cast<uint16_t*>(keys) + block + lane;
      for (int d = 0; d < shape.dim; d++) {
        to[size_t(d) * kLanes] = narrow[d];
      }
      kernels.narrow(value, reinterpret_cast<uint16_t*>(values) + size_t(at) * shape.padded(), shape.dim);
      return;
    }
    case KvFormat::q8:
    case KvFormat::q4: {
      const int groups = shape.dim / shape.group;
      const bool bytes = shape.format == KvFormat::q8;
      const float top = bytes ? 255.f : 15.f;
      uint8_t key_codes[512], value_codes[512];
      float* key_parameters = reinterpret_cast<float*>(values + shape.value_bytes());
      float* value_parameters =
          reinterpret_cast<float*>(values + shape.value_bytes() + shape.parameter_bytes()) + size_t(at) * groups * 2;
      for (int g = 0; g < groups; g++) {
        const int start = g * shape.group;
        const Quantized k = quantize_group(key + start, shape.group, top, key_codes + start);
        float* parameters = key_parameters + (size_t(at / kLanes) * groups + g) * 2 * kLanes + lane;
        parameters[0] = k.scale;
        parameters[kLanes] = k.bias;
        const Quantized v = quantize_group(value + start, shape.group, top, value_codes + start);
        value_parameters[2 * g] = v.scale;
        value_parameters[2 * g + 1] = v.bias;
      }
      if (bytes) {
        for (int d = 0; d < shape.dim; d++) {
          keys[block + size_t(d) * kLanes + lane] = key_codes[d];
        }
        std::memcpy(values + size_t(at) * shape.padded(), value_codes, shape.dim);
        return;
      }
      for (int d = 0; d < shape.dim; d += 2) {
        keys[(block + size_t(d) * kLanes) / 2 + lane] = static_cast<uint8_t>(key_codes[d] | key_codes[d + 1] << 4);
      }
      uint8_t* to = values + size_t(at) * shape.dim / 2;
      for (int d = 0; d < shape.dim; d += 32) {
        for (int i = 0; i < 16; i++) {
          *to++ = static_cast<uint8_t>(value_codes[d + i] | value_codes[d + 16 + i] << 4);
        }
      }
      return;
    }
  }
}

void write_float_key_value(int dim, int padded, int at, float* keys, float* values, const float* key, const float* value) {
  float* to = keys + size_t(at / kLanes) * dim * kLanes + at % kLanes;
  for (int d = 0; d < dim; d++) {
    to[size_t(d) * kLanes] = key[d];
  }
  std::memcpy(values + size_t(at) * padded, value, sizeof(float) * dim);
}

void read_key_value(const KvTable& table, int64_t token, int head, float* key, float* value) {
  const KvShape& shape = table.shape;
  const int at = static_cast<int>(token % kChunkKeys);
  const KvSpan span = table.span(static_cast<int>(token / kChunkKeys), head);
  const float* keys = static_cast<const float*>(span.keys) + size_t(at / kLanes) * shape.dim * kLanes + at % kLanes;
  for (int d = 0; d < shape.dim; d++) {
    key[d] = keys[size_t(d) * kLanes];
  }
  std::memcpy(value, static_cast<const float*>(span.values) + size_t(at) * shape.padded(), sizeof(float) * shape.dim);
}

} // namespace dspark::cpu
