/** A tiny model as a pair of the library: nothing is known of it, so that it drafts by lookup. */
import { join } from "node:path";
import { type LoadOptions, loadPair, type Pair } from "../../src/index.ts";
import { goldenRoot } from "../support/golden.ts";

export const TINY = join(goldenRoot("dense"), "llama-f32");

export function loadTiny(options: LoadOptions = {}): Promise<Pair> {
  return loadPair(TINY, { offline: true, ...options });
}
