// What the C border of the CPU backend is made of: handles to objects, checks of shapes, rows of evaluated arrays.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>

#include "cpu_task.h"
#include "dspark_cpu.h"
#include "failure.h"
#include "self_attention.h"

#define DSPARK_API extern "C" __attribute__((visibility("default")))

namespace dspark::border {

namespace mx = mlx::core;
using namespace dspark::cpu;
using dspark::CpuTask;
using dspark::guarded;
using dspark::View;
using MatrixPtr = std::shared_ptr<const Matrix>;
using AttentionPtr = std::shared_ptr<const AttentionSpec>;

inline void require(bool holds, const std::string& message) {
  if (!holds) {
    throw std::invalid_argument(message);
  }
}

inline const mx::array& array_of(const mlx_array& handle) {
  require(handle.ctx != nullptr, "an array is missing");
  return *static_cast<mx::array*>(handle.ctx);
}

inline const MatrixPtr& matrix_of(const dspark_cpu_matrix& handle) {
  require(handle.ctx != nullptr, "a packed matrix is missing");
  return *static_cast<MatrixPtr*>(handle.ctx);
}

inline void put(mlx_array* res, mx::array value) {
  if (res->ctx == nullptr) {
    res->ctx = new mx::array(std::move(value));
  } else {
    *static_cast<mx::array*>(res->ctx) = std::move(value);
  }
}

inline mx::Stream stream_of(const mlx_stream& handle) {
  const mx::Stream stream =
      handle.ctx == nullptr ? mx::default_stream(mx::Device::cpu) : *static_cast<mx::Stream*>(handle.ctx);
  require(stream.device == mx::Device::cpu, "the CPU backend runs on CPU streams");
  return stream;
}

inline std::string text(const mx::Shape& shape) {
  std::string out("[");
  for (size_t axis = 0; axis < shape.size(); axis++) {
    if (axis > 0) {
      out.push_back(',');
    }
    out.append(std::to_string(shape[axis]));
  }
  out.push_back(']');
  return out;
}

inline void require_rows(const mx::array& x, int features, const char* what) {
  require(x.dtype() == mx::float32, std::string(what) + ": activations of the CPU backend are float32");
  require(x.ndim() == 2 && x.shape(1) == features,
          std::string(what) + ": has shape " + text(x.shape()) + ", wanted [rows," + std::to_string(features) + "]");
}

// A float32 constant of the model: read when the array is made, its memory kept with the task.
struct Vector {
  Vector(const mlx_array& handle, int length, const char* what) : array(array_of(handle)) {
    require(array.dtype() == mx::float32 && static_cast<int>(array.size()) == length,
            std::string(what) + ": must be float32[" + std::to_string(length) + "]");
    require(array.is_available() && array.flags().row_contiguous, std::string(what) + ": must be evaluated");
  }
  const float* data() const {
    return array.data<float>();
  }
  mx::array array;
};

inline std::vector<float> floats_of(const mlx_array& handle, int length, const char* what) {
  if (handle.ctx == nullptr) {
    return {};
  }
  const Vector vector(handle, length, what);
  return {vector.data(), vector.data() + length};
}

inline FloatType float_type(const mx::array& a, const char* what) {
  require(a.dtype() == mx::float32 || a.dtype() == mx::float16 || a.dtype() == mx::bfloat16,
          std::string(what) + ": must be float32, float16 or bfloat16");
  return a.dtype() == mx::float32 ? FloatType::f32 : a.dtype() == mx::float16 ? FloatType::f16 : FloatType::bf16;
}

// Rows of an evaluated array; only a last axis that is not dense is copied.
inline Rows rows_of(const View& a, Scratch& scratch) {
  const int count = a.shape(0);
  const int features = a.shape(1);
  if (features == 1 || a.strides(1) == 1) {
    return {a.data<float>(), static_cast<size_t>(count == 1 ? features : a.strides(0)), count};
  }
  float* copy = scratch.get<float>(a.size());
  for (int m = 0; m < count; m++) {
    for (int k = 0; k < features; k++) {
      copy[size_t(m) * features + k] = a.data<float>()[m * a.strides(0) + k * a.strides(1)];
    }
  }
  return {copy, static_cast<size_t>(features), count};
}

// The same without a distance between the rows.
inline Rows dense_rows(const View& a, Scratch& scratch) {
  const Rows rows = rows_of(a, scratch);
  const size_t features = a.shape(1);
  if (rows.stride == features) {
    return rows;
  }
  float* copy = scratch.get<float>(a.size());
  for (int m = 0; m < rows.count; m++) {
    std::copy(rows.row(m), rows.row(m) + features, copy + m * features);
  }
  return {copy, features, rows.count};
}

// One for each argument or inner value of a task: what a task holds at a time must not share it.
inline Scratch& scratch_of_thread(int use) {
  static thread_local Scratch scratch[4];
  return scratch[use];
}

// Rows of one argument through `compute(context, rows, out)`.
template <class Compute>
mx::array rows_task(const char* name, const mx::array& x, int features, const mlx_stream& s, Compute&& compute) {
  const Kernels& table = kernels();
  return CpuTask::make(
      name, {x.shape(0), features}, {x}, stream_of(s), [compute, &table](const auto& in, auto& out) {
        const std::shared_ptr<Pool> threads = pool();
        compute(Context{table, *threads}, rows_of(in[0], scratch_of_thread(0)), out[0].template data<float>());
      });
}

} // namespace dspark::border
