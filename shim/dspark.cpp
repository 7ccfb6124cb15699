// See dspark.h. Every function catches at the C boundary; the message goes to the calling thread's record.
#include "dspark.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "failure.h"
#include "mlx/array.h"
#include "mlx/allocator.h"
#include "mlx/c/error.h"
#include "mlx/c/fast.h"
#include "mlx/c/memory.h"
#include "mlx/c/ops.h"
#include "mlx/c/private/enums.h"
#include "mlx/c/transforms.h"
#include "mlx/dtype.h"

#define DSPARK_API extern "C" __attribute__((visibility("default")))

namespace {

namespace mx = mlx::core;

thread_local std::string last_error;

void record(const char* message, void* /*data*/) {
  last_error = message == nullptr ? "unknown MLX error" : message;
}

using dspark::fail;

mlx_optional_int optional_int(int value) {
  return {value, value > 0};
}

mlx_optional_float optional_float(float value) {
  return {value, value > 0};
}

// A vector handle that frees itself.
struct Vector {
  explicit Vector(mlx_vector_array vector) : handle(vector) {}
  Vector(const mlx_array* handles, size_t count) : handle(mlx_vector_array_new_data(handles, count)) {}
  Vector(const Vector&) = delete;
  Vector& operator=(const Vector&) = delete;
  ~Vector() {
    mlx_vector_array_free(handle);
  }
  mlx_vector_array handle;
};

// Reads exactly `size` bytes at `offset`, or says what was wrong.
int read_exactly(const char* path, uint64_t offset, void* into, size_t size) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return fail(std::string("cannot open ") + path + ": " + std::strerror(errno));
  }
  size_t done = 0;
  int status = 0;
  while (done < size) {
    // Linux reads at most 2 GiB a call, macOS fails above it.
    const size_t want = size - done < (size_t(1) << 30) ? size - done : size_t(1) << 30;
    const ssize_t got = pread(fd, static_cast<char*>(into) + done, want, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      status = fail(
          std::string(path) + (got < 0 ? std::string(": ") + std::strerror(errno)
                                       : ": the file ended " + std::to_string(size - done) +
                                             " bytes early; it changed since it was checked"));
      break;
    }
    done += static_cast<size_t>(got);
  }
  close(fd);
  return status;
}

#if defined(__GLIBC__)
// MLX on a CPU takes every array from malloc. A step frees its activations and the next one wants the same sizes again,
// so glibc is told to serve all but huge ones from its heaps and to keep what is freed. Left alone it maps and unmaps
// them one by one at first, adapts, and then never shrinks the evaluating thread's heap.
constexpr int kMapAboveBytes = 32 << 20; // the largest that glibc takes
constexpr int kKeepBytes = 512 << 20;
constexpr int kShrinkAboveBytes = 64 << 10;

void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, kMapAboveBytes);
  mallopt(M_TRIM_THRESHOLD, kKeepBytes);
}

void return_freed_memory() {
  // malloc_trim leaves the end of a thread's heap alone; freeing a block of 64 KiB or more looks at it.
  mallopt(M_TRIM_THRESHOLD, kShrinkAboveBytes);
  void* volatile block = std::malloc(2 * kShrinkAboveBytes);
  std::free(block);
  malloc_trim(0);
  mallopt(M_TRIM_THRESHOLD, kKeepBytes);
}
#else
void keep_freed_memory() {}
void return_freed_memory() {}
#endif

} // namespace

int dspark::fail(const std::string& message) {
  last_error = message;
  return 1;
}

DSPARK_API int dspark_init(void) {
  keep_freed_memory();
  mlx_set_error_handler(record, nullptr, nullptr);
  return 0;
}

DSPARK_API const char* dspark_last_error(void) {
  return last_error.c_str();
}

DSPARK_API int dspark_abi_version(void) {
  return 1;
}

DSPARK_API int dspark_free_arrays(const mlx_array* handles, size_t count) {
  int status = 0;
  for (size_t i = 0; i < count; i++) {
    status |= mlx_array_free(handles[i]);
  }
  return status;
}

DSPARK_API int dspark_release_memory(void) {
  const int status = mlx_clear_cache();
  return_freed_memory();
  return status;
}

DSPARK_API int dspark_async_eval(const mlx_array* handles, size_t count) {
  const Vector vector(handles, count);
  return mlx_async_eval(vector.handle);
}

DSPARK_API int dspark_eval(const mlx_array* handles, size_t count) {
  const Vector vector(handles, count);
  return mlx_eval(vector.handle);
}

DSPARK_API int dspark_row_contiguous(const mlx_array a) {
  bool contiguous = false;
  return _mlx_array_is_row_contiguous(&contiguous, a) == 0 && contiguous ? 1 : 0;
}

DSPARK_API int
dspark_concatenate(mlx_array* res, const mlx_array* handles, size_t count, int axis, const mlx_stream s) {
  const Vector vector(handles, count);
  return mlx_concatenate_axis(res, vector.handle, axis, s);
}

DSPARK_API int
dspark_cumsum(mlx_array* res, const mlx_array a, int axis, bool reverse, bool inclusive, const mlx_stream s) {
  return mlx_cumsum_axis(res, a, axis, reverse, inclusive, {MLX_FLOAT32, false}, s);
}

DSPARK_API int dspark_array_from_file(
    mlx_array* res,
    const char* path,
    uint64_t offset,
    const int* shape,
    int ndim,
    mlx_dtype dtype) {
  try {
    const mx::Dtype type = mlx_dtype_to_cpp(dtype);
    const mx::Shape dims(shape, shape + ndim);
    size_t count = 1;
    for (const auto dim : dims) {
      count *= static_cast<size_t>(dim);
    }
    const size_t bytes = count * type.size();
    auto buffer = mx::allocator::malloc(bytes);
    if (bytes > 0 && read_exactly(path, offset, buffer.raw_ptr(), bytes) != 0) {
      mx::allocator::free(buffer);
      return 1;
    }
    res->ctx = new mx::array(buffer, dims, type);
    return 0;
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}

DSPARK_API int dspark_quantized_matmul(
    mlx_array* res,
    const mlx_array x,
    const mlx_array w,
    const mlx_array scales,
    const mlx_array biases,
    bool transpose,
    int group_size,
    int bits,
    const char* mode,
    const mlx_stream s) {
  return mlx_quantized_matmul(
      res, x, w, scales, biases, transpose, optional_int(group_size), optional_int(bits), mode, s);
}

DSPARK_API int dspark_quantize(
    mlx_array* weight,
    mlx_array* scales,
    mlx_array* biases,
    const mlx_array w,
    int group_size,
    int bits,
    const char* mode,
    const mlx_stream s) {
  Vector parts(mlx_vector_array_new());
  const mlx_array none{nullptr};
  if (mlx_quantize(&parts.handle, w, optional_int(group_size), optional_int(bits), mode, none, s) != 0) {
    return 1;
  }
  mlx_array* const outputs[] = {weight, scales, biases};
  const size_t count = mlx_vector_array_size(parts.handle);
  for (size_t i = 0; i < count && i < 3; i++) {
    if (mlx_vector_array_get(outputs[i], parts.handle, i) != 0) {
      return 1;
    }
  }
  return 0;
}

DSPARK_API int dspark_dequantize(
    mlx_array* res,
    const mlx_array w,
    const mlx_array scales,
    const mlx_array biases,
    int group_size,
    int bits,
    const char* mode,
    const mlx_stream s) {
  const mlx_array none{nullptr};
  const mlx_optional_dtype any{MLX_FLOAT32, false};
  return mlx_dequantize(
      res, w, scales, biases, optional_int(group_size), optional_int(bits), mode, none, any, s);
}

DSPARK_API int dspark_rope(
    mlx_array* res,
    const mlx_array x,
    int dims,
    bool traditional,
    float base,
    float scale,
    int offset,
    const mlx_array freqs,
    const mlx_stream s) {
  return mlx_fast_rope(res, x, dims, traditional, optional_float(base), scale, offset, freqs, s);
}

DSPARK_API int dspark_rope_dynamic(
    mlx_array* res,
    const mlx_array x,
    int dims,
    bool traditional,
    float base,
    float scale,
    const mlx_array offset,
    const mlx_array freqs,
    const mlx_stream s) {
  return mlx_fast_rope_dynamic(res, x, dims, traditional, optional_float(base), scale, offset, freqs, s);
}
