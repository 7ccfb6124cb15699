// Owned memory for packed weights, keys and values: 64-byte aligned, zeroed, counted, in huge pages where the system
// gives them (a token streams every weight once, so page walks show). MLX's allocator promises no alignment.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace dspark::cpu {

inline std::atomic<size_t> bytes_held{0};

constexpr size_t kHugePage = size_t(2) << 20;

inline unsigned char* allocate_zeroed(size_t size) {
  void* data = nullptr;
  if (posix_memalign(&data, size >= kHugePage ? kHugePage : 64, size) != 0) {
    throw std::bad_alloc();
  }
#ifdef __linux__
  if (size >= kHugePage) {
    madvise(data, size, MADV_HUGEPAGE);
  }
#endif
  std::memset(data, 0, size);
  return static_cast<unsigned char*>(data);
}

// Whole huge pages that many small pieces share, one behind the other: most matrices of a small model are far smaller
// than a page. What is given back is not used again before the whole slab is.
class Slab {
 public:
  struct Piece {
    unsigned char* data;
    std::shared_ptr<Slab> slab;
  };
  static Piece take(size_t size) {
    static std::mutex one_at_a_time;
    static std::weak_ptr<Slab> open;
    const std::lock_guard lock(one_at_a_time);
    std::shared_ptr<Slab> slab = open.lock();
    if (slab == nullptr || slab->used_ + size > kSize) {
      slab = std::make_shared<Slab>();
      open = slab;
    }
    unsigned char* data = slab->data_ + slab->used_;
    slab->used_ += (size + 63) / 64 * 64;
    return {data, std::move(slab)};
  }
  Slab() : data_(allocate_zeroed(kSize)) {}
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  ~Slab() {
    std::free(data_);
  }

 private:
  static constexpr size_t kSize = 2 * kHugePage;
  unsigned char* data_;
  size_t used_ = 0;
};

class Buffer {
 public:
  Buffer() = default;
  // For what comes and goes: memory of its own.
  explicit Buffer(size_t size) : size_(size) {
    if (size > 0) {
      data_ = allocate_zeroed(size + kReadBehind);
      bytes_held += size;
    }
  }
  // For what is loaded and unloaded together: small pieces share huge pages.
  static Buffer lasting(size_t size) {
#ifdef __SANITIZE_ADDRESS__
    return Buffer(size); // whose ends are watched
#endif
    if (size == 0 || size + kReadBehind >= kHugePage) {
      return Buffer(size);
    }
    Buffer buffer;
    Slab::Piece piece = Slab::take(size + kReadBehind);
    buffer.data_ = piece.data;
    buffer.slab_ = std::move(piece.slab);
    buffer.size_ = size;
    bytes_held += size;
    return buffer;
  }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), slab_(std::move(other.slab_)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(slab_, other.slab_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    bytes_held -= size_;
    if (slab_ == nullptr) {
      std::free(data_);
    }
  }

  unsigned char* data() {
    return data_;
  }
  const unsigned char* data() const {
    return data_;
  }
  size_t size() const {
    return size_;
  }

 private:
  // Vector loads may read up to one vector behind the last record.
  static constexpr size_t kReadBehind = 64;
  unsigned char* data_ = nullptr;
  size_t size_ = 0;
  std::shared_ptr<Slab> slab_; // null: `data_` is this buffer's own
};

// Scratch of one thread, grown and reused; never shared between threads.
class Scratch {
 public:
  template <class T>
  T* get(size_t count) {
    const size_t bytes = count * sizeof(T);
    if (bytes > held_.size()) {
      held_ = Buffer(bytes);
    }
    return reinterpret_cast<T*>(held_.data());
  }

 private:
  Buffer held_;
};

} // namespace dspark::cpu
