/** The soak itself: load in parts, and what the server holds at rest after each. Judging is the caller's business. */
import { join } from "node:path";
import { repoRoot } from "../support/native.ts";
import { type LoadPlan, type LoadResult, sendLoad } from "./load.ts";
import { ServedProcess } from "./served-process.ts";

/** What the server holds when `requests` have been sent and none is running. */
export interface SoakSample {
  readonly requests: number;
  readonly liveArrays: number;
  readonly activeBytes: number;
  readonly residentBytes: number;
}

export interface SoakResult extends LoadResult {
  readonly samples: readonly SoakSample[];
  /** False when the process ended before it was told to. */
  readonly lived: boolean;
}

/** A llama of three layers with a tokenizer and a chat template. */
const MODEL = join(repoRoot, "test/data/golden/dense/llama-f32");

export interface Sampling {
  /** Requests between two samples. */
  readonly part: number;
  /** See `residentBytesAtRest`: more are steadier and take longer. */
  readonly rests: number;
}

/** Serves the tiny model by `program` and sends the plan. */
export async function soak(
  program: readonly string[],
  plan: LoadPlan,
  { part, rests }: Sampling,
  onSample: (sample: SoakSample) => void = () => undefined,
): Promise<SoakResult> {
  await using served = await ServedProcess.start(program, MODEL);
  const samples: SoakSample[] = [];
  const load = await sendLoad(served.url, plan, part, async (requests) => {
    const { live_arrays, active_bytes } = await served.idleCounters();
    const residentBytes = await served.residentBytesAtRest(rests);
    const sample = { requests, liveArrays: live_arrays, activeBytes: active_bytes, residentBytes };
    samples.push(sample);
    onSample(sample);
  });
  return { ...load, samples, lived: served.running };
}

/** Growth of resident memory from the first to the last sample: 0.01 is one per cent. */
export function residentGrowth(samples: readonly SoakSample[]): number {
  const [first, last] = [samples[0], samples.at(-1)];
  if (first === undefined || last === undefined) throw new RangeError("no samples");
  return last.residentBytes / first.residentBytes - 1;
}
