/**
 * How fast a model can decode here at most: every step reads its active weights and the state of the context once
 * (memory.md §8). Speculation legitimately exceeds it: it commits several tokens a step.
 */

import { type Static, Type as t } from "@sinclair/typebox";

export interface ReadPerToken {
  readonly activeBytes: number;
  readonly kvBytesPerToken: number;
}

export const ceilingSchema = t.Object(
  {
    context: t.Integer({ description: "Tokens." }),
    bytes_per_token: t.Integer(),
    ceiling_tps: t.Union([
      t.Number({ description: "Tokens a second of one stream; null: the bandwidth is unknown." }),
      t.Null(),
    ]),
  },
  { $id: "Ceiling" },
);

export type Ceiling = Static<typeof ceilingSchema>;

/** @param gbS bandwidth in 1e9 bytes a second; null: unknown */
export function ceilingAt(
  context: number,
  { activeBytes, kvBytesPerToken }: ReadPerToken,
  gbS: number | null,
): Ceiling {
  const bytes = activeBytes + kvBytesPerToken * context;
  return {
    context,
    bytes_per_token: Math.round(bytes),
    ceiling_tps: gbS === null || bytes <= 0 ? null : rounded((gbS * 1e9) / bytes, 2),
  };
}

/** Context at which a calibration measures a step, in tokens (calibration.md §2). */
const STEP_CONTEXT = 512;

export const baselineSchema = t.Object({
  step_ms: t.Number(),
  achieved_gb_s: t.Number(),
  mbu: t.Union([
    t.Number({ description: "Of the bandwidth, the part that a plain step uses; null: it is unknown." }),
    t.Null(),
  ]),
});

export type Baseline = Static<typeof baselineSchema>;

/** What a plain step achieves. `stepMs` as calibrated. */
export function baselineOf(stepMs: number, read: ReadPerToken, gbS: number | null): Baseline {
  const achieved = ceilingAt(STEP_CONTEXT, read, null).bytes_per_token / (stepMs * 1e6);
  return {
    step_ms: rounded(stepMs, 3),
    achieved_gb_s: rounded(achieved, 2),
    mbu: gbS === null || gbS <= 0 ? null : rounded(achieved / gbS, 3),
  };
}

function rounded(value: number, digits: number): number {
  const scale = 10 ** digits;
  return Math.round(value * scale) / scale;
}
