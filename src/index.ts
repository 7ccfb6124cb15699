/**
 * The engine in a program of one's own, without server and command line (library-api.md).
 *
 *     await using pair = await loadPair("smollm2-135m");
 *     for await (const piece of speculativeGenerate(pair, "Explain rainbows.").text()) process.stdout.write(piece);
 */
import packageFile from "../package.json" with { type: "json" };
import { embeddedSizes } from "./engine/embedded/files.ts";
import { catalogue, type InstalledModel, installedModels } from "./hub/catalogue.ts";
import { type Arm, type CompareOptions, type Comparison, compareArms } from "./library/compare.ts";
import type { Generation } from "./library/generation.ts";
import {
  checkKeys,
  type GenerateOptions,
  KNOWN,
  type LookupOptions,
  type SpeculativeOptions,
  speculationOf,
} from "./library/options.ts";
import type { Input, Pair } from "./library/pair.ts";

export { EngineError } from "./engine/client.ts";
export { CancelledError, DisposedError, RequestError } from "./library/errors.ts";
export type {
  GenerationEvent,
  GenerationResult,
  GenerationStats,
  LogprobEntry,
  Mode,
} from "./library/events.ts";
export type { LoadOptions, LoadProgress } from "./library/options.ts";
export { loadPair } from "./library/pair.ts";
export {
  ChatTemplate,
  Detokenizer as IncrementalDetokenizer,
  TextTokenizer as Tokenizer,
} from "./text/index.ts";
export type {
  Arm,
  CompareOptions,
  Comparison,
  GenerateOptions,
  Generation,
  Input,
  LookupOptions,
  Pair,
  SpeculativeOptions,
};

if (typeof Bun === "undefined") throw new Error("mlx-dspark needs Bun ≥ 1.4");

export const version: string = packageFile.version;

/**
 * Plain decoding, whatever the pair has.
 * @throws TypeError for a wrong option, DisposedError; everything else rejects the generation
 */
export function generate(pair: Pair, input: Input, options: GenerateOptions = {}): Generation {
  checkKeys(options, KNOWN.generate);
  return pair.start(input, options, { mode: "baseline" });
}

/**
 * Decoding in the pair's mode: the same tokens as `generate`, with fewer forwards of the target.
 * @throws as `generate`
 */
export function speculativeGenerate(pair: Pair, input: Input, options: SpeculativeOptions = {}): Generation {
  checkKeys(options, KNOWN.speculative);
  return pair.start(input, options, speculationOf(options), options.verifyLossless);
}

/**
 * Drafts from the text itself only.
 * @throws as `generate`
 */
export function lookupGenerate(pair: Pair, input: Input, options: LookupOptions = {}): Generation {
  checkKeys(options, KNOWN.lookup);
  const { longDraft, verifyLossless } = options;
  const speculation = { mode: "lookup" as const, ...(longDraft !== undefined && { lookupLongDraft: longDraft }) };
  return pair.start(input, options, speculation, verifyLossless);
}

/** Runs the arms greedily one after the other and judges whether they wrote the same, with margins where they part. */
export function compare(
  pair: Pair,
  input: Input,
  arms: readonly Arm[],
  options: CompareOptions = {},
): Promise<Comparison> {
  return compareArms(pair, input, arms, options);
}

/** A known model: what it needs, and what of it is on this machine. Sizes in bytes. */
export interface KnownModel {
  readonly id: string;
  readonly target: string;
  readonly dspark: string | null;
  readonly dflash: string | null;
  readonly ramGb: number;
  /** null: not here. */
  readonly targetBytes: number | null;
  readonly drafterBytes: number | null;
  /** Nothing has to be downloaded. */
  readonly ready: boolean;
}

/** The registry, and every model found on this machine. Reads names and sizes only, and never connects. */
export async function listModels(): Promise<{
  readonly known: readonly KnownModel[];
  readonly installed: readonly InstalledModel[];
}> {
  const rows = await catalogue(process.env, embeddedSizes);
  const known = rows.map(({ row: { id, repo, dspark, dflash, ramGb }, ...here }) => ({
    ...{ id, target: repo, dspark, dflash, ramGb },
    ...here,
  }));
  return { known, installed: await installedModels(process.env) };
}
