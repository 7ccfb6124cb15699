/** A naive model of a cache: all surviving keys and values in plain arrays, attention in float64. */

export const SHAPE = { heads: 4, kvHeads: 2, width: 32 } as const;
export const SCALE = SHAPE.width ** -0.5;

/** One token's queries, keys and values, head by head. */
export interface Token {
  readonly q: Float32Array;
  readonly k: Float32Array;
  readonly v: Float32Array;
}

/** The token number `serial` of a run: the same numbers each time, all different. */
export function token(serial: number): Token {
  const values = (salt: number, length: number) =>
    Float32Array.from({ length }, (_, i) => Math.sin(serial * 12.9898 + i * 78.233 + salt) * 2);
  return {
    q: values(1, SHAPE.heads * SHAPE.width),
    k: values(2, SHAPE.kvHeads * SHAPE.width),
    v: values(3, SHAPE.kvHeads * SHAPE.width),
  };
}

/** [heads, count, width] of one part of tokens, as a state takes it. */
export function stacked(tokens: readonly Token[], part: keyof Token, heads: number): Float32Array {
  const { width } = SHAPE;
  const out = new Float32Array(heads * tokens.length * width);
  for (const [t, each] of tokens.entries()) {
    for (let h = 0; h < heads; h++) {
      out.set(each[part].subarray(h * width, (h + 1) * width), (h * tokens.length + t) * width);
    }
  }
  return out;
}

/** What query `at` of `tokens` sees within `window`: [heads·width]. */
export function attended(tokens: readonly Token[], at: number, window: number | null): Float64Array {
  const { heads, kvHeads, width } = SHAPE;
  const first = window === null ? 0 : Math.max(0, at - window + 1);
  const query = tokens[at];
  const out = new Float64Array(heads * width);
  if (query === undefined) return out;
  for (let h = 0; h < heads; h++) {
    const group = Math.floor(h / (heads / kvHeads)) * width;
    const weights: number[] = [];
    for (const seen of tokens.slice(first, at + 1)) {
      let score = 0;
      for (let d = 0; d < width; d++) score += (query.q[h * width + d] ?? 0) * (seen.k[group + d] ?? 0);
      weights.push(Math.exp(score * SCALE));
    }
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    for (const [i, weight] of weights.entries()) {
      const v = tokens[first + i]?.v;
      for (let d = 0; d < width; d++)
        out[h * width + d] = (out[h * width + d] ?? 0) + (weight / total) * (v?.[group + d] ?? 0);
    }
  }
  return out;
}
