/*
 * What the TypeScript side needs beyond mlx-c, in mlx-c's manners: an int status (0 is success) and the result through
 * the first pointer. A failed call has recorded its message for the calling thread (dspark_last_error); nothing here
 * or in MLX ends the process. Optional scalars of mlx-c are structs that an FFI cannot pass: a value <= 0 means absent.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mlx/c/array.h"
#include "mlx/c/stream.h"
#include "mlx/c/vector.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Makes MLX errors be recorded instead of ending the process. Call once per process before any other call. */
int dspark_init(void);

/** Message of the calling thread's last failed call; valid until its next failed call. Never null. */
const char* dspark_last_error(void);

/** Interface version of this library; the TypeScript side refuses another one. */
int dspark_abi_version(void);

/** Frees `count` array handles in one call. */
int dspark_free_arrays(const mlx_array* handles, size_t count);

/**
 * Gives freed memory back to the system: MLX's kept buffers, and what the C library keeps for the calling thread, which
 * should be the one that evaluates. Takes milliseconds; for a thread that has nothing to do.
 */
int dspark_release_memory(void);

/** Schedules the evaluation of `count` arrays without waiting. */
int dspark_async_eval(const mlx_array* handles, size_t count);

/** Evaluates `count` arrays and waits. */
int dspark_eval(const mlx_array* handles, size_t count);

/** 1 when the elements of the evaluated array lie in row order without gaps, else 0. */
int dspark_row_contiguous(const mlx_array a);

/** Concatenates `count` arrays along `axis`. */
int dspark_concatenate(mlx_array* res, const mlx_array* handles, size_t count, int axis, const mlx_stream s);

/** Running sum along `axis`, in the array's dtype. */
int dspark_cumsum(mlx_array* res, const mlx_array a, int axis, bool reverse, bool inclusive, const mlx_stream s);

/**
 * Reads a tensor's bytes from a file into a fresh array: no mapping, so a file that shrinks meanwhile is an error and
 * not a signal. Fails when fewer bytes are there than the shape needs.
 */
int dspark_array_from_file(
    mlx_array* res,
    const char* path,
    uint64_t offset,
    const int* shape,
    int ndim,
    mlx_dtype dtype);

int dspark_quantized_matmul(
    mlx_array* res,
    const mlx_array x,
    const mlx_array w,
    const mlx_array scales,
    const mlx_array biases /* may be null */,
    bool transpose,
    int group_size,
    int bits,
    const char* mode,
    const mlx_stream s);

/** Parts of a quantized matrix: 3 for affine (weight, scales, biases), 2 otherwise (biases stays null). */
int dspark_quantize(
    mlx_array* weight,
    mlx_array* scales,
    mlx_array* biases,
    const mlx_array w,
    int group_size,
    int bits,
    const char* mode,
    const mlx_stream s);

int dspark_dequantize(
    mlx_array* res,
    const mlx_array w,
    const mlx_array scales,
    const mlx_array biases /* may be null */,
    int group_size,
    int bits,
    const char* mode,
    const mlx_stream s);

/** Rotary embedding with one start position for all rows; `base` <= 0 means that `freqs` is given. */
int dspark_rope(
    mlx_array* res,
    const mlx_array x,
    int dims,
    bool traditional,
    float base,
    float scale,
    int offset,
    const mlx_array freqs /* may be null */,
    const mlx_stream s);

/** Rotary embedding with an int32 array of start positions, one per batch row. */
int dspark_rope_dynamic(
    mlx_array* res,
    const mlx_array x,
    int dims,
    bool traditional,
    float base,
    float scale,
    const mlx_array offset,
    const mlx_array freqs /* may be null */,
    const mlx_stream s);

#ifdef __cplusplus
}
#endif
