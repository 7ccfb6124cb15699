/** The sampling law of decoding.md §5 in plain JavaScript with float32 rounding: what the device must give. */
import type { SamplingParams } from "../../src/decoding/sampling-params.ts";

const f32 = Math.fround;

/** Steps 2–4: bias, repetition penalty over prompt and completion, presence and frequency over the completion. */
export function penalized(
  logits: Float32Array,
  params: Pick<SamplingParams, "logitBias" | "repetitionPenalty" | "presencePenalty" | "frequencyPenalty">,
  prompt: readonly number[],
  completion: readonly number[],
): Float32Array {
  const out = Float32Array.from(logits);
  const bias = new Float32Array(out.length);
  for (const [id, value] of params.logitBias) if (id < out.length) bias[id] = (bias[id] ?? 0) + value;
  for (let id = 0; id < out.length; id++) out[id] = (out[id] ?? 0) + (bias[id] ?? 0);
  const penalty = f32(params.repetitionPenalty);
  if (params.repetitionPenalty !== 1) {
    for (const id of new Set([...prompt, ...completion])) {
      const x = out[id] ?? 0;
      out[id] = x > 0 ? x / penalty : x * penalty;
    }
  }
  for (const id of new Set(completion)) {
    const count = completion.filter((other) => other === id).length;
    if (params.presencePenalty !== 0) out[id] = (out[id] ?? 0) - f32(params.presencePenalty);
    if (params.frequencyPenalty !== 0) out[id] = (out[id] ?? 0) - f32(count * f32(params.frequencyPenalty));
  }
  return out;
}

/** Steps 6–8 on probabilities [V]: which ids survive. */
export function survivors(p: Float32Array, params: Pick<SamplingParams, "topK" | "topP" | "minP">): Set<number> {
  let kept = new Set(p.keys());
  const descending = () => [...kept].map((id) => p[id] ?? 0).sort((a, b) => b - a);
  if (params.topK > 0 && params.topK < p.length) {
    const threshold = descending()[params.topK - 1] ?? 0;
    kept = new Set([...kept].filter((id) => (p[id] ?? 0) >= threshold));
  }
  if (params.topP < 1) {
    let mass = 0;
    let cutoff = 1;
    for (const value of descending()) {
      mass = f32(mass + value);
      if (f32(mass - value) < f32(params.topP)) cutoff = value;
    }
    kept = new Set([...kept].filter((id) => (p[id] ?? 0) >= cutoff));
  }
  if (params.minP > 0) {
    const threshold = f32(f32(params.minP) * Math.max(...p));
    kept = new Set([...kept].filter((id) => (p[id] ?? 0) >= threshold));
  }
  return kept;
}

export function argmax(values: Float32Array): number {
  return values.indexOf(values.reduce((best, value) => Math.max(best, value)));
}

/** log-softmax in float64. */
export function logSoftmax(logits: Float32Array): Float64Array {
  const top = Math.max(...logits);
  const total = Math.log(logits.reduce((sum, x) => sum + Math.exp(x - top), 0)) + top;
  return Float64Array.from(logits, (x) => x - total);
}
