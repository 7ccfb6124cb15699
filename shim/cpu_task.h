// A lazy MLX array that one function computes on the stream's own thread.
//
// MLX calls eval_cpu on the thread that evaluates; outputs are allocated there and the function is queued. MLX keeps
// inputs and outputs alive until the queue has passed them, so the function gets plain views: copies of arrays would be
// the larger part of what a small task costs.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "mlx/allocator.h"
#include "mlx/array.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "mlx/scheduler.h"
#include "mlx/transforms.h"

namespace dspark {

// Where an array's elements are, of its first two axes.
class View {
 public:
  View() = default;
  explicit View(const mlx::core::array& array)
      : data_(const_cast<void*>(array.data<void>())), size_(array.size()) {
    for (size_t axis = 0; axis < array.ndim() && axis < 2; axis++) {
      shape_[axis] = array.shape(static_cast<int>(axis));
      strides_[axis] = array.strides(static_cast<int>(axis));
    }
  }
  template <class T>
  T* data() const {
    return static_cast<T*>(data_);
  }
  int shape(int axis) const {
    return shape_[axis];
  }
  int64_t strides(int axis) const {
    return strides_[axis];
  }
  size_t size() const {
    return size_;
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
  int shape_[2] = {};
  int64_t strides_[2] = {};
};

class CpuTask final : public mlx::core::Primitive {
 public:
  using Arrays = std::vector<mlx::core::array>;
  // The first of each; inputs behind them are only waited for.
  using Views = std::array<View, 2>;
  // Must not throw: by then nobody can be told.
  using Function = std::function<void(const Views& inputs, const Views& outputs)>;

  CpuTask(mlx::core::Stream stream, const char* name, std::vector<mlx::core::Shape> shapes, Function function)
      : Primitive(stream), name_(name), shapes_(std::move(shapes)),
        function_(std::make_shared<const Function>(std::move(function))) {}

  static mlx::core::array make(const char* name, mlx::core::Shape shape, Arrays inputs, mlx::core::Stream stream,
                               Function function) {
    return make(name, std::move(shape), mlx::core::float32, std::move(inputs), stream, std::move(function));
  }
  static mlx::core::array make(const char* name, mlx::core::Shape shape, mlx::core::Dtype type, Arrays inputs,
                               mlx::core::Stream stream, Function function) {
    auto task = std::make_shared<CpuTask>(stream, name, std::vector{shape}, std::move(function));
    return mlx::core::array(std::move(shape), type, std::move(task), std::move(inputs));
  }
  static Arrays make_two(const char* name, mlx::core::Shape first, mlx::core::Dtype first_type, mlx::core::Shape second,
                         Arrays inputs, mlx::core::Stream stream, Function function) {
    auto task = std::make_shared<CpuTask>(stream, name, std::vector{first, second}, std::move(function));
    return mlx::core::array::make_arrays({std::move(first), std::move(second)}, {first_type, mlx::core::float32}, task,
                                         inputs);
  }

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override {
    Views in, out;
    for (size_t i = 0; i < inputs.size() && i < in.size(); i++) {
      in[i] = View(inputs[i]);
    }
    for (size_t i = 0; i < outputs.size(); i++) {
      outputs[i].set_data(mlx::core::allocator::malloc(outputs[i].nbytes()));
      out[i] = View(outputs[i]);
    }
    auto task = [function = function_, in, out] { (*function)(in, out); };
    if (outputs[0].nbytes() > kSmall) {
      mlx::core::cpu::get_command_encoder(stream()).dispatch(std::move(task));
    } else {
      mlx::core::scheduler::enqueue(stream(), std::move(task));
    }
  }
  void eval_gpu(const Arrays&, Arrays&) override {
    throw std::runtime_error(std::string(name_) + " runs on a CPU only");
  }
  const char* name() const override {
    return name_;
  }
  std::vector<mlx::core::Shape> output_shapes(const Arrays&) override {
    return shapes_;
  }

 private:
  // Bytes of a result up to which a task goes past the encoder. That one lets the evaluating thread sleep when a hundred
  // tasks wait, and wakes it whenever ten are done: it bounds the memory of large steps, and slows down small ones.
  static constexpr size_t kSmall = size_t(1) << 20;

  const char* name_;
  std::vector<mlx::core::Shape> shapes_;
  std::shared_ptr<const Function> function_;
};

} // namespace dspark
