// Keys and values of one layer and sequence, in chunks of kChunkKeys tokens at fixed positions: growing adds a chunk and
// moves nothing, rolling back is the caller's lower length, forks share chunks and copy the ones they write to.
// A chunk holds, for each kv head, keys [16-key block][dim][16] and values [key][padded dim], so that scores need no
// horizontal sums and a tail lane may hold anything.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "buffer.h"
#include "kernels.h"

namespace dspark::cpu {

struct KvShape {
  int heads = 0;
  int dim = 0;
  KvFormat format = KvFormat::f32;
  int group = 0; // quantized: features that share a scale; divides dim, a multiple of 32

  int padded() const {
    return (dim + kLanes - 1) / kLanes * kLanes;
  }
  size_t element_bits() const {
    switch (format) {
      case KvFormat::f32:
        return 32;
      case KvFormat::f16:
        return 16;
      case KvFormat::q8:
        return 8;
      default:
        return 4;
    }
  }
  size_t key_bytes() const {
    return size_t(kChunkKeys) * dim * element_bits() / 8;
  }
  size_t value_bytes() const {
    return size_t(kChunkKeys) * padded() * element_bits() / 8;
  }
  // Of the keys or of the values.
  size_t parameter_bytes() const {
    return is_quantized(format) ? size_t(kChunkKeys) * (dim / group) * 2 * sizeof(float) : 0;
  }
  size_t head_bytes() const {
    return key_bytes() + value_bytes() + 2 * parameter_bytes();
  }
};

struct KvChunk {
  explicit KvChunk(size_t bytes) : data(bytes) {}
  Buffer data;
  // Stores that hold the chunk; above one it is not written.
  std::atomic<int> owners{1};
};

// The chunks as one step sees them. Immutable: a running step keeps its own.
struct KvTable {
  KvShape shape;
  int first_chunk = 0; // chunks before it are forgotten
  std::vector<std::shared_ptr<KvChunk>> chunks;

  unsigned char* head(int chunk, int head) const {
    return chunks[chunk - first_chunk]->data.data() + head * shape.head_bytes();
  }
  KvSpan span(int chunk, int head) const;
};

class KvStore {
 public:
  explicit KvStore(const KvShape& shape);
  ~KvStore();
  KvStore(const KvStore&) = delete;
  KvStore& operator=(const KvStore&) = delete;

  // The table with room for tokens [from, to), which the caller is about to write: shared chunks among them are copied
  // first. Throws std::out_of_range when `from` is forgotten.
  std::shared_ptr<const KvTable> writable(int64_t from, int64_t to);
  // Frees the chunks that end at or before `token`.
  void forget_before(int64_t token);
  // The table as it is, to be read.
  const std::shared_ptr<const KvTable>& table() const {
    return table_;
  }
  // A store that shares every chunk. What was written must be there: pending steps are not waited for.
  std::unique_ptr<KvStore> fork() const;
  size_t bytes() const;
  // The first token held.
  int first_token() const {
    return table_->first_chunk * kChunkKeys;
  }
  const KvShape& shape() const {
    return table_->shape;
  }

 private:
  KvStore() = default;
  std::shared_ptr<const KvTable> table_;
};

// Writes one token's key and value of one head, rounded to the store's format.
void write_key_value(const Kernels& kernels, const KvTable& table, int64_t token, int head, const float* key,
                     const float* value);

// The same in float32, as key `at` of a chunk's or block's spans of one head.
void write_float_key_value(int dim, int padded, int at, float* keys, float* values, const float* key, const float* value);

// Reads one token's key and value of one head from a float32 table.
void read_key_value(const KvTable& table, int64_t token, int head, float* key, float* value);

} // namespace dspark::cpu
