/*
 * The CPU backend's primitives: lazy MLX arrays over the kernels in cpu/, for float32 activations on a CPU stream. A row
 * of a result depends on that row's input alone, to the bit: not on how many rows there are, nor on threads, nor on the
 * instruction set. Manners as in dspark.h.
 *
 * Activations are [rows, features]. Handles of matrices, attentions and keys-and-values are freed by their owner; work
 * that is under way keeps what it needs.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mlx/c/array.h"
#include "mlx/c/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A weight matrix [outputs, inputs] in the kernels' own layout. */
typedef struct dspark_cpu_matrix_ {
  void* ctx;
} dspark_cpu_matrix;

/** The constants of one layer's self-attention. */
typedef struct dspark_cpu_attention_ {
  void* ctx;
} dspark_cpu_attention;

/** Keys and values of one layer and sequence. */
typedef struct dspark_cpu_kv_ {
  void* ctx;
} dspark_cpu_kv;

/** One sequence's part of a step: tokens [start, start + count), which must follow what the sequence holds. */
typedef struct dspark_cpu_row_ {
  dspark_cpu_kv kv;
  /** The token of the sequence's step before, null at the first: the step waits for it. */
  mlx_array after;
  int start;
  int count;
  /** Tokens that a query sees, itself included; 0: all. What lies more than 64 tokens before the window is freed. */
  int window;
  /** Of a block alone: no slot sees a token before this one. */
  int first;
} dspark_cpu_row;

/** Threads that share the work of a step, the caller's own included; 0: MLX_DSPARK_THREADS, else all usable processors. */
int dspark_cpu_set_threads(int threads);
int dspark_cpu_threads(int* res);

/** "avx512", "avx2", "neon" or "portable"; null when MLX_DSPARK_ISA names one that does not run here. */
const char* dspark_cpu_isa(void);

/** Bytes that matrices, keys and values hold outside of MLX's allocator. */
size_t dspark_cpu_bytes(void);

/**
 * Packs a matrix from evaluated arrays: MLX's packed one (`mode` affine, mxfp4, nvfp4, mxfp8), or a plain float32, float16
 * or bfloat16 one with `scales` null. `bias` (float32 [outputs], may be null) is added to every product.
 */
int dspark_cpu_pack(
    dspark_cpu_matrix* res,
    const mlx_array w,
    const mlx_array scales /* may be null */,
    const mlx_array biases /* may be null */,
    int group_size,
    int bits,
    const char* mode,
    const mlx_array bias /* may be null */);
int dspark_cpu_matrix_free(dspark_cpu_matrix matrix);

/** x · mᵀ; with `outputs` above 0 only that many first columns, rounded up to whole blocks of 16. */
int dspark_cpu_matmul(mlx_array* res, const mlx_array x, const dspark_cpu_matrix m, int outputs, const mlx_stream s);

/** residual + x · mᵀ */
int dspark_cpu_matmul_add(
    mlx_array* res,
    const mlx_array x,
    const dspark_cpu_matrix m,
    const mlx_array residual,
    const mlx_stream s);

/** rms_norm(x) times up to three matrices, results side by side. `norm` is float32 and evaluated. */
int dspark_cpu_norm_matmul(
    mlx_array* res,
    const mlx_array x,
    const mlx_array norm,
    float eps,
    const dspark_cpu_matrix a,
    const dspark_cpu_matrix b /* may be null */,
    const dspark_cpu_matrix c /* may be null */,
    const mlx_stream s);

/** x + (act(rms_norm(x) · gateᵀ) · (rms_norm(x) · upᵀ)) · downᵀ; activation 0: SiLU, 1: GELU by tanh. */
int dspark_cpu_feed_forward(
    mlx_array* res,
    const mlx_array x,
    const mlx_array norm,
    float eps,
    const dspark_cpu_matrix gate,
    const dspark_cpu_matrix up,
    const dspark_cpu_matrix down,
    int activation,
    const mlx_stream s);

/** rms_norm(x), as the fused primitives compute it. */
int dspark_cpu_norm(mlx_array* res, const mlx_array x, const mlx_array norm, float eps, const mlx_stream s);

/** The place of the largest along the last axis, uint32, the first one on ties; only float32 rows are computed here. */
int dspark_cpu_argmax(mlx_array* res, const mlx_array x, const mlx_stream s);

/** Rows of a matrix, [count, inputs] float32, by int32 or uint32 ids. An id outside gives a row of NaN. */
int dspark_cpu_embed(mlx_array* res, const mlx_array ids, const dspark_cpu_matrix m, const mlx_stream s);

/** Cosines, then sines, of position · inverse[j], times magnitude: [count, 2·half]. */
int dspark_cpu_rope_table(
    mlx_array* res,
    const mlx_array positions,
    const double* inverse,
    int half,
    double magnitude,
    const mlx_stream s);

int dspark_cpu_attention_new(
    dspark_cpu_attention* res,
    int heads,
    int kv_heads,
    int dim,
    float scale,
    int rope_dims,
    bool interleaved,
    const mlx_array q_norm /* may be null */,
    float q_eps,
    const mlx_array k_norm /* may be null */,
    float k_eps,
    float soft_cap,
    const mlx_array sinks /* may be null */);
int dspark_cpu_attention_free(dspark_cpu_attention attention);

/** format 0: float32, 1: float16, 2 and 3: 8 and 4 bits, affine in groups of `group` features by MLX's rule. */
int dspark_cpu_kv_new(dspark_cpu_kv* res, int heads, int dim, int format, int group);
int dspark_cpu_kv_free(dspark_cpu_kv kv);
size_t dspark_cpu_kv_bytes(dspark_cpu_kv kv);
/** The first token that is still held. */
int dspark_cpu_kv_first(dspark_cpu_kv kv);
/** A twin that shares what is held; every step of `kv` must have been evaluated. */
int dspark_cpu_kv_fork(dspark_cpu_kv* res, dspark_cpu_kv kv);

/**
 * A self-attention block: q, k and v of rms_norm(x), rotated, appended and attended to, through o, added to x. x
 * [tokens, features] of all rows behind each other, `rope` from dspark_cpu_rope_table (null without rotation) → res like
 * x. `token` becomes the array that each row's next step waits for and that must be evaluated with this one.
 */
int dspark_cpu_self_attention(
    mlx_array* res,
    mlx_array* token,
    const dspark_cpu_attention attention,
    const mlx_array x,
    const mlx_array norm,
    float eps,
    const dspark_cpu_matrix q,
    const dspark_cpu_matrix k,
    const dspark_cpu_matrix v,
    const dspark_cpu_matrix o,
    const mlx_array rope /* may be null */,
    const dspark_cpu_row* rows,
    int row_count,
    const mlx_stream s);

/** Rotates and appends alone: kv [tokens, 2·kv_heads·dim], the keys of all heads before the values. */
int dspark_cpu_append(
    mlx_array* token,
    const dspark_cpu_attention attention,
    const mlx_array kv,
    const mlx_array rope /* may be null */,
    const dspark_cpu_row* rows,
    int row_count,
    const mlx_stream s);

/**
 * Attention of blocks of up to 256 tokens that are not appended: qkv [tokens, (heads + 2·kv_heads)·dim] of all rows behind
 * each other → res [tokens, heads·dim]. Each token sees the sequence's tokens [first, start) within its window and its own
 * block, `causal` none of it behind itself, `windowed` none before its window.
 */
int dspark_cpu_attend_block(
    mlx_array* res,
    const dspark_cpu_attention attention,
    const mlx_array qkv,
    const mlx_array rope /* may be null */,
    const dspark_cpu_row* rows,
    int row_count,
    bool causal,
    bool windowed,
    const mlx_stream s);

/** Keys, then values, of tokens [from, to) of a float32 store: [2, heads, to − from, dim]; waits for `after`. */
int dspark_cpu_kv_read(
    mlx_array* res,
    dspark_cpu_kv kv,
    const mlx_array after /* may be null */,
    int from,
    int to,
    const mlx_stream s);

/**
 * The greedy walk over a draft: f_i is the row of `before` of the id ahead (`anchor` int32 or uint32 [1], then ids[i − 1]),
 * ids[i] the first largest of base[i] + f_i · afterᵀ among `width` columns. base [count, width or more] → ids uint32
 * [count], features f [count, inputs]. An id that `before` does not have counts as 0.
 */
int dspark_cpu_greedy_walk(
    mlx_array* ids,
    mlx_array* features,
    const mlx_array base,
    const mlx_array anchor,
    const dspark_cpu_matrix before,
    const dspark_cpu_matrix after,
    int width,
    const mlx_stream s);

#ifdef __cplusplus
}
#endif
