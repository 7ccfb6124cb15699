// A lazy MLX array that one function computes on the stream's own thread.
//
// MLX calls eval_cpu on the thread that evaluates; outputs are allocated there and the function is queued. MLX keeps
// inputs and outputs alive until the queue has passed them, so the function holds weak copies only.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "mlx/allocator.h"
#include "mlx/array.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "mlx/transforms.h"

namespace dspark {

class CpuTask final : public mlx::core::Primitive {
 public:
  using Arrays = std::vector<mlx::core::array>;
  // Must not throw: by then nobody can be told.
  using Function = std::function<void(const Arrays& inputs, Arrays& outputs)>;

  CpuTask(mlx::core::Stream stream, const char* name, std::vector<mlx::core::Shape> shapes, Function function)
      : Primitive(stream), name_(name), shapes_(std::move(shapes)),
        function_(std::make_shared<const Function>(std::move(function))) {}

  static mlx::core::array make(const char* name, mlx::core::Shape shape, Arrays inputs, mlx::core::Stream stream,
                               Function function) {
    auto task = std::make_shared<CpuTask>(stream, name, std::vector{shape}, std::move(function));
    return mlx::core::array(std::move(shape), mlx::core::float32, std::move(task), std::move(inputs));
  }
  static Arrays make_two(const char* name, mlx::core::Shape first, mlx::core::Dtype first_type, mlx::core::Shape second,
                         Arrays inputs, mlx::core::Stream stream, Function function) {
    auto task = std::make_shared<CpuTask>(stream, name, std::vector{first, second}, std::move(function));
    return mlx::core::array::make_arrays({std::move(first), std::move(second)}, {first_type, mlx::core::float32}, task,
                                         inputs);
  }

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override {
    Arrays in, out;
    for (const auto& input : inputs) {
      in.push_back(mlx::core::array::unsafe_weak_copy(input));
    }
    for (auto& output : outputs) {
      output.set_data(mlx::core::allocator::malloc(output.nbytes()));
      out.push_back(mlx::core::array::unsafe_weak_copy(output));
    }
    mlx::core::cpu::get_command_encoder(stream()).dispatch(
        [function = function_, in = std::move(in), out = std::move(out)]() mutable { (*function)(in, out); });
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
  const char* name_;
  std::vector<mlx::core::Shape> shapes_;
  std::shared_ptr<const Function> function_;
};

} // namespace dspark
