// The shim's C surface under the address and undefined-behaviour sanitizers: every function of dspark.h with right and
// with wrong arguments. Values are small enough to be checked by hand. Prints "N ok, N not ok".
#include "dspark.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <unistd.h>
#include <vector>

#include "mlx/c/device.h"
#include "mlx/c/ops.h"

namespace {

int failures_in_test = 0;

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      std::printf("  %s:%d: %s\n", __FILE__, __LINE__, #condition);   \
      failures_in_test++;                                             \
    }                                                                 \
  } while (false)

mlx_stream stream;

struct Array {
  Array() = default;
  Array(std::vector<float> values, std::vector<int> shape)
      : handle(mlx_array_new_data(values.data(), shape.data(), static_cast<int>(shape.size()), MLX_FLOAT32)) {}
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() {
    if (handle.ctx != nullptr) {
      mlx_array_free(handle);
    }
  }
  std::vector<float> values() const {
    CHECK(mlx_array_dtype(handle) == MLX_FLOAT32);
    mlx_array plain{nullptr};
    mlx_contiguous(&plain, handle, false, stream);
    std::vector<float> out;
    if (dspark_eval(&plain, 1) == 0) {
      const float* data = mlx_array_data_float32(plain);
      out.assign(data, data + mlx_array_size(plain));
    }
    mlx_array_free(plain);
    return out;
  }
  mlx_array handle{nullptr};
};

const mlx_array none{nullptr};

bool close_to(const std::vector<float>& got, const std::vector<float>& want, float tolerance) {
  if (got.size() != want.size()) {
    return false;
  }
  for (size_t i = 0; i < got.size(); i++) {
    if (!(std::fabs(got[i] - want[i]) <= tolerance)) {
      return false;
    }
  }
  return true;
}

// A file with `bytes`, gone with the object.
struct TemporaryFile {
  explicit TemporaryFile(const std::vector<float>& values) {
    const char* folder = std::getenv("TMPDIR");
    path = std::string(folder == nullptr ? P_tmpdir : folder) + "/shim-test-XXXXXX";
    const int fd = mkstemp(path.data());
    const size_t size = values.size() * sizeof(float);
    if (fd < 0 || write(fd, values.data(), size) != static_cast<ssize_t>(size)) {
      std::abort();
    }
    close(fd);
  }
  ~TemporaryFile() {
    unlink(path.c_str());
  }
  std::string path;
};

void errors_are_recorded() {
  Array a({1, 2, 3}, {3});
  Array b({1, 2}, {2});
  Array out;
  CHECK(mlx_add(&out.handle, a.handle, b.handle, stream) != 0);
  CHECK(std::strstr(dspark_last_error(), "broadcast") != nullptr);
  CHECK(out.handle.ctx == nullptr);
}

void concatenates() {
  Array a({1, 2}, {1, 2});
  Array b({3, 4}, {1, 2});
  const mlx_array parts[] = {a.handle, b.handle};
  Array rows;
  CHECK(dspark_concatenate(&rows.handle, parts, 2, 0, stream) == 0);
  CHECK((rows.values() == std::vector<float>{1, 2, 3, 4}));
  Array columns;
  CHECK(dspark_concatenate(&columns.handle, parts, 2, 1, stream) == 0);
  CHECK(mlx_array_dim(columns.handle, 1) == 4);
  Array wrong;
  CHECK(dspark_concatenate(&wrong.handle, parts, 2, 7, stream) != 0);
  Array nothing;
  CHECK(dspark_concatenate(&nothing.handle, parts, 0, 0, stream) != 0);
}

void sums() {
  Array a({1, 2, 3, 4}, {4});
  Array forward;
  CHECK(dspark_cumsum(&forward.handle, a.handle, 0, false, true, stream) == 0);
  CHECK((forward.values() == std::vector<float>{1, 3, 6, 10}));
  Array backward;
  CHECK(dspark_cumsum(&backward.handle, a.handle, 0, true, false, stream) == 0);
  CHECK((backward.values() == std::vector<float>{9, 7, 4, 0}));
}

void evaluates() {
  Array a({1, 2}, {2});
  Array sum;
  CHECK(mlx_add(&sum.handle, a.handle, a.handle, stream) == 0);
  CHECK(dspark_async_eval(&sum.handle, 1) == 0);
  CHECK((sum.values() == std::vector<float>{2, 4}));
  CHECK(dspark_eval(nullptr, 0) == 0);
}

void orders() {
  Array a({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(dspark_eval(&a.handle, 1) == 0);
  CHECK(dspark_row_contiguous(a.handle) == 1);
  Array turned;
  CHECK(mlx_transpose(&turned.handle, a.handle, stream) == 0);
  CHECK(dspark_eval(&turned.handle, 1) == 0);
  CHECK(dspark_row_contiguous(turned.handle) == 0);
}

void frees() {
  const int shape[] = {2};
  const float values[] = {1, 2};
  const mlx_array handles[] = {
      mlx_array_new_data(values, shape, 1, MLX_FLOAT32), none, mlx_array_new_data(values, shape, 1, MLX_FLOAT32)};
  CHECK(dspark_free_arrays(handles, 3) == 0);
  CHECK(dspark_free_arrays(nullptr, 0) == 0);
  // What is held lives on; what was freed may go.
  Array held({1, 2}, {2});
  CHECK(dspark_release_memory() == 0);
  CHECK((held.values() == std::vector<float>{1, 2}));
}

void reads_files() {
  const TemporaryFile file({1, 2, 3, 4, 5, 6});
  const int shape[] = {2, 2};
  Array whole;
  CHECK(dspark_array_from_file(&whole.handle, file.path.c_str(), 8, shape, 2, MLX_FLOAT32) == 0);
  CHECK((whole.values() == std::vector<float>{3, 4, 5, 6}));
  Array late;
  CHECK(dspark_array_from_file(&late.handle, file.path.c_str(), 12, shape, 2, MLX_FLOAT32) != 0);
  CHECK(std::strstr(dspark_last_error(), "ended 4 bytes early") != nullptr);
  CHECK(late.handle.ctx == nullptr);
  Array missing;
  CHECK(dspark_array_from_file(&missing.handle, "/nowhere/at/all", 0, shape, 2, MLX_FLOAT32) != 0);
  CHECK(std::strstr(dspark_last_error(), "/nowhere/at/all") != nullptr);
  Array empty;
  const int zero[] = {0, 4};
  CHECK(dspark_array_from_file(&empty.handle, file.path.c_str(), 0, zero, 2, MLX_FLOAT32) == 0);
  CHECK(mlx_array_size(empty.handle) == 0);
}

void quantizes() {
  // One row of 64 whole numbers 0…15: exact in 4 bits.
  std::vector<float> row(64);
  for (size_t i = 0; i < row.size(); i++) {
    row[i] = static_cast<float>(i % 16);
  }
  Array w(row, {1, 64});
  Array packed, scales, biases;
  CHECK(dspark_quantize(&packed.handle, &scales.handle, &biases.handle, w.handle, 64, 4, "affine", stream) == 0);
  Array back;
  CHECK(dspark_dequantize(
            &back.handle, packed.handle, scales.handle, biases.handle, 64, 4, "affine", stream) == 0);
  CHECK(close_to(back.values(), row, 1e-5f));
  Array x(std::vector<float>(64, 1), {1, 64});
  Array y;
  CHECK(dspark_quantized_matmul(
            &y.handle, x.handle, packed.handle, scales.handle, biases.handle, true, 64, 4, "affine", stream) == 0);
  CHECK(close_to(y.values(), {480}, 1e-2f));
  Array wrong;
  CHECK(dspark_quantized_matmul(
            &wrong.handle, x.handle, packed.handle, scales.handle, biases.handle, true, 64, 4, "no", stream) != 0);
  Array fp_packed, fp_scales, fp_biases;
  CHECK(dspark_quantize(
            &fp_packed.handle, &fp_scales.handle, &fp_biases.handle, w.handle, 0, 0, "mxfp4", stream) == 0);
  CHECK(fp_biases.handle.ctx == nullptr);
  Array fp_back;
  CHECK(dspark_dequantize(
            &fp_back.handle, fp_packed.handle, fp_scales.handle, none, 0, 0, "mxfp4", stream) == 0);
  CHECK(mlx_array_size(fp_back.handle) == 64);
  CHECK(dspark_eval(&fp_back.handle, 1) == 0);
}

void rotates() {
  Array x({1, 0, 1, 0}, {1, 1, 2, 2});
  Array fixed;
  CHECK(dspark_rope(&fixed.handle, x.handle, 2, false, 10000, 1, 3, none, stream) == 0);
  const std::vector<float> want{std::cos(3.0f), std::sin(3.0f), std::cos(4.0f), std::sin(4.0f)};
  CHECK(close_to(fixed.values(), want, 1e-5f));
  const int shape[] = {1};
  const int start = 3;
  Array offset;
  offset.handle = mlx_array_new_data(&start, shape, 1, MLX_INT32);
  Array dynamic;
  CHECK(dspark_rope_dynamic(&dynamic.handle, x.handle, 2, false, 10000, 1, offset.handle, none, stream) == 0);
  CHECK(close_to(dynamic.values(), want, 1e-5f));
  Array freqs({1}, {1});
  Array given;
  CHECK(dspark_rope(&given.handle, x.handle, 2, false, 0, 1, 3, freqs.handle, stream) == 0);
  CHECK(close_to(given.values(), want, 1e-5f));
  Array neither;
  CHECK(dspark_rope(&neither.handle, x.handle, 2, false, 0, 1, 3, none, stream) != 0);
}

void has_a_version() {
  CHECK(dspark_abi_version() > 0);
}

} // namespace

int main() {
  dspark_init();
  const mlx_device device = mlx_device_new_type(MLX_CPU, 0);
  mlx_set_default_device(device);
  stream = mlx_stream_new_device(device);
  mlx_set_default_stream(stream);
  const std::vector<std::pair<const char*, std::function<void()>>> tests{
      {"errors are recorded and nothing exits", errors_are_recorded},
      {"concatenate", concatenates},
      {"cumsum", sums},
      {"eval and async_eval", evaluates},
      {"row order", orders},
      {"free_arrays and release_memory", frees},
      {"array_from_file", reads_files},
      {"quantize, dequantize, quantized_matmul", quantizes},
      {"rope and rope_dynamic", rotates},
      {"abi_version", has_a_version},
  };
  int passed = 0;
  int failed = 0;
  for (const auto& [name, test] : tests) {
    failures_in_test = 0;
    test();
    (failures_in_test == 0 ? passed : failed)++;
    std::printf("%s %s\n", failures_in_test == 0 ? "ok    " : "not ok", name);
  }
  mlx_stream_free(stream);
  mlx_device_free(device);
  std::printf("%d ok, %d not ok\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
