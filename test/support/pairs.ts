/** Tiny targets with their drafters, and a scheduler over them whose every outcome can be compared with another's. */
import { join } from "node:path";
import type { GrammarCompiler } from "../../src/decoding/constraint.ts";
import { Speculator, type SpeculatorOptions } from "../../src/decoding/speculator.ts";
import type { Drafter } from "../../src/drafters/drafter.ts";
import { loadDrafter } from "../../src/drafters/load.ts";
import type { FromEngine, GenerateRequest, LoadSpec, RequestStats, TokenLogprob } from "../../src/engine/protocol.ts";
import { loadTarget } from "../../src/models/load.ts";
import { chooseCompute } from "../../src/nn/select.ts";
import { harness, type Tiny } from "../engine/tiny.ts";
import { drafterRoot, drafterSource, readCase } from "./drafter-golden.ts";

export interface Pair extends Tiny {
  readonly name: string;
  readonly drafter: Drafter;
}

export type Backend = "fused" | "stock";

/** @param cacheRoot where a GGUF drafter is converted to */
export function loadGoldenPair(name: string, backend: Backend, cacheRoot: string | null = null): Pair {
  const [target, source, windowTokens] = name.startsWith("drafter_")
    ? ["target_det", join(drafterRoot, "loops", name), 0]
    : ["target", drafterSource(name), readCase(name).ctx_window ?? 0];
  const { compute, dtype } = chooseCompute({ MLX_DSPARK_CPU: backend });
  const { model } = loadTarget(join(drafterRoot, target), compute, { dtype });
  try {
    const drafter = loadDrafter(source, model, { compute, dtype, bits: 0, windowTokens, cacheRoot });
    const dispose = () => {
      drafter.dispose();
      model.dispose();
    };
    return { name, model, layout: compute.stateLayout, drafter, dispose };
  } catch (error) {
    model.dispose();
    throw error;
  }
}

/** Lookup alone where there is no drafter; nothing priced, nothing cut. */
export function speculator(part: Partial<SpeculatorOptions>): Speculator {
  const { drafter = null } = part;
  return new Speculator({
    drafter,
    cap: 0,
    curves: null,
    lookup: drafter === null,
    longDraft: 32,
    confidenceThreshold: 0,
    ...part,
  });
}

export interface Told {
  readonly ids: readonly number[];
  readonly logprobs: readonly TokenLogprob[];
  /** Finish reason or error. */
  readonly end: string;
  /** null after a failure. */
  readonly stats: RequestStats | null;
}

/** What one request was told from its first token to its end. */
export function told(posted: readonly FromEngine[], id: string): Told {
  const ids: number[] = [];
  const logprobs: TokenLogprob[] = [];
  for (const message of posted) {
    if (message.type === "tokens") {
      for (const event of message.batch) {
        if (event.id !== id) continue;
        ids.push(...event.ids);
        logprobs.push(...(event.logprobs ?? []));
      }
    } else if (message.type === "done" && message.id === id) {
      return { ids, logprobs, end: message.reason, stats: message.stats };
    } else if (message.type === "failed" && message.id === id) {
      return { ids, logprobs, end: message.error.message, stats: null };
    }
  }
  throw new Error(`request ${id} has no end`);
}

/** Runs requests together to their ends. */
export function runAll(
  tiny: Tiny,
  requests: readonly GenerateRequest[],
  options: Partial<LoadSpec> & {
    readonly speculator?: Speculator;
    readonly vocab?: number;
    readonly grammars?: GrammarCompiler;
  } = {},
): Told[] {
  const { scheduler, posted, run } = harness(tiny, { maxQueue: requests.length, ...options });
  for (const each of requests) scheduler.submit(each);
  run();
  return requests.map(({ id }) => told(posted, id));
}

/** How often and where two texts differ first, as one line; "" when they are the same. */
export function difference(a: readonly number[], b: readonly number[]): string {
  if (a.length === b.length && a.every((id, i) => id === b[i])) return "";
  const at = a.findIndex((id, i) => id !== b[i]);
  return `differ at ${at < 0 ? Math.min(a.length, b.length) : at} of ${a.length} and ${b.length}`;
}
