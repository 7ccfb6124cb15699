// Joining small arrays as one task: MLX's own copies each input in a task of its own.
#pragma once

#include <cstring>

#include "cpu_task.h"

namespace dspark {

class CpuConcatenate final : public mlx::core::Primitive {
 public:
  using Arrays = std::vector<mlx::core::array>;

  // Along the last axis or the one before it.
  CpuConcatenate(mlx::core::Stream stream, bool along_rows) : Primitive(stream), along_rows_(along_rows) {}

  // Whether the arrays are of one kind that this can join: elements of four bytes, one axis or two.
  static bool joins(const Arrays& arrays, int axis) {
    if (arrays.empty()) {
      return false;
    }
    const mlx::core::array& first = arrays[0];
    const int axes = static_cast<int>(first.ndim());
    if (first.itemsize() != 4 || axes < 1 || axes > 2 || axis < 0 || axis >= axes) {
      return false;
    }
    size_t bytes = 0;
    for (const mlx::core::array& array : arrays) {
      if (array.dtype() != first.dtype() || static_cast<int>(array.ndim()) != axes ||
          (axes == 2 && array.shape(1 - axis) != first.shape(1 - axis))) {
        return false;
      }
      bytes += array.nbytes();
    }
    return bytes > 0 && bytes <= kSmallResult;
  }

  // @param arrays that `joins`
  static mlx::core::array make(Arrays arrays, int axis, mlx::core::Stream stream) {
    mlx::core::Shape shape = arrays[0].shape();
    for (size_t i = 1; i < arrays.size(); i++) {
      shape[axis] += arrays[i].shape(axis);
    }
    const mlx::core::Dtype type = arrays[0].dtype();
    auto joined = std::make_shared<CpuConcatenate>(stream, axis + 1 == static_cast<int>(shape.size()));
    return mlx::core::array(std::move(shape), type, std::move(joined), std::move(arrays));
  }

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override {
    mlx::core::array& out = outputs[0];
    out.set_data(mlx::core::allocator::malloc(out.nbytes()));
    const int64_t width = out.shape(-1);
    std::vector<Piece> pieces;
    pieces.reserve(inputs.size());
    uint32_t* to = out.data<uint32_t>();
    for (const mlx::core::array& input : inputs) {
      if (input.size() == 0) {
        continue;
      }
      const View view(input);
      const bool flat = input.ndim() == 1;
      const Piece piece{view.data<uint32_t>(), to, flat ? 1 : view.shape(0), flat ? view.shape(0) : view.shape(1),
                        flat ? 0 : view.strides(0), flat ? view.strides(0) : view.strides(1)};
      pieces.push_back(piece);
      to += along_rows_ ? piece.columns : piece.rows * width;
    }
    queue_task(stream(), out.nbytes(), [pieces = std::move(pieces), width] {
      for (const Piece& piece : pieces) {
        piece.copy(width);
      }
    });
  }
  void eval_gpu(const Arrays&, Arrays&) override {
    throw std::runtime_error("CpuConcatenate runs on a CPU only");
  }
  const char* name() const override {
    return "DsparkConcatenate";
  }

 private:
  struct Piece {
    const uint32_t* from;
    uint32_t* to;
    int rows, columns;
    int64_t row_stride, column_stride;

    void copy(int64_t width) const {
      for (int row = 0; row < rows; row++) {
        const uint32_t* source = from + row * row_stride;
        uint32_t* target = to + row * width;
        if (column_stride == 1) {
          std::memcpy(target, source, size_t(columns) * sizeof(uint32_t));
          continue;
        }
        for (int column = 0; column < columns; column++) {
          target[column] = source[column * column_stride];
        }
      }
    }
  };

  bool along_rows_;
};

} // namespace dspark
