// Owned memory for packed weights, keys and values: 64-byte aligned, zeroed, counted, in huge pages where the system
// gives them (a token streams every weight once, so page walks show). MLX's allocator promises no alignment.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace dspark::cpu {

inline std::atomic<size_t> bytes_held{0};

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t size) : size_(size) {
    if (size == 0) {
      return;
    }
    // Vector loads may read up to one vector behind the last record.
    const size_t rounded = size + 64;
    void* data = nullptr;
    if (posix_memalign(&data, size >= kHugePage ? kHugePage : 64, rounded) != 0) {
      throw std::bad_alloc();
    }
    data_ = static_cast<unsigned char*>(data);
#ifdef __linux__
    if (size >= kHugePage) {
      madvise(data_, rounded, MADV_HUGEPAGE);
    }
#endif
    std::memset(data_, 0, rounded);
    bytes_held += size;
  }
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_ != nullptr) {
      bytes_held -= size_;
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
  static constexpr size_t kHugePage = size_t(2) << 20;
  unsigned char* data_ = nullptr;
  size_t size_ = 0;
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
