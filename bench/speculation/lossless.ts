/**
 * Losslessness of the real pair in bulk: the same prompts in every mode, alone and in batches, greedy and sampled with
 * seeds, until at least 10⁴ tokens of each mode are compared with plain decoding. Ends with 1 on any difference.
 *
 * Usage: bun bench/speculation/lossless.ts [--tokens N] [--backend fused|stock]
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { CapController } from "../../src/decoding/cap-controller.ts";
import { CostCurves } from "../../src/decoding/cost-curves.ts";
import type { Speculator } from "../../src/decoding/speculator.ts";
import type { GenerateRequest } from "../../src/engine/protocol.ts";
import { request } from "../../test/engine/tiny.ts";
import { openTestMlx } from "../../test/support/native.ts";
import { difference, runAll, speculator } from "../../test/support/pairs.ts";
import { GREEDY } from "../../test/support/sampling.ts";
import { loadSmollm2, smollm2Folder } from "../../test/support/smollm2.ts";
import { readPrompts } from "./prompts.ts";

const LENGTH = 160;

const { values: flags } = parseArgs({
  options: { tokens: { type: "string", default: "10000" }, backend: { type: "string", default: "fused" } },
});
const wanted = Number(flags.tokens);
if (!Number.isInteger(wanted) || wanted < 1) throw new RangeError("--tokens must be a positive integer");
if (flags.backend !== "fused" && flags.backend !== "stock") throw new RangeError("--backend is fused or stock");

openTestMlx();
const files = join(import.meta.dir, "../../build/bench");
mkdirSync(files, { recursive: true });
const folder = await smollm2Folder(join(files, "smollm2"));
const { prompts } = await readPrompts(folder);
const pair = loadSmollm2(folder, 4, flags.backend);
const { drafter } = pair;

/** Prompts round and round, each time with another seed; every fourth is sampled. */
const asked: GenerateRequest[] = Array.from({ length: Math.ceil(wanted / LENGTH) }, (_, i) => {
  const sampled = { ...GREEDY, temperature: 0.7, topP: 0.95, topK: 40, seed: String(i) };
  const promptIds = prompts[(i * 7) % prompts.length]?.ids ?? [];
  return request({ promptIds, maxNewTokens: LENGTH, sampling: i % 4 === 3 ? sampled : GREEDY });
});

const curves = new CostCurves({ verify: { 1: 10, 7: 16, 33: 40 }, drafter: { 1: 1, 6: 3 } });
const modes: readonly (readonly [string, number, () => Speculator | null])[] = [
  ["baseline in batches", 4, () => null],
  ["dspark, cap 2", 1, () => speculator({ drafter, cap: 2 })],
  ["dspark, whole block", 4, () => speculator({ drafter })],
  ["dspark, cut by confidence", 3, () => speculator({ drafter, confidenceThreshold: 0.4 })],
  ["auto with lookup", 2, () => speculator({ drafter, cap: controller(), lookup: true, curves })],
  ["lookup", 1, () => speculator({})],
];

function controller(): CapController {
  return new CapController(curves, { maxCap: drafter.maxDraft });
}

let started = performance.now();
const seconds = () => {
  const passed = (performance.now() - started) / 1000;
  started = performance.now();
  return passed.toFixed(0);
};
const expected = runAll(pair, asked, { maxBatch: 1 });
console.log(`plain decoding, alone: ${asked.length} answers of ${LENGTH} tokens, ${seconds()} s`);
let different = 0;
for (const [name, maxBatch, policy] of modes) {
  const chosen = policy();
  const actual = runAll(pair, asked, { maxBatch, ...(chosen !== null && { speculator: chosen }) });
  const tokens = actual.reduce((sum, { ids }) => sum + ids.length, 0);
  const rounds = actual.reduce((sum, { stats }) => sum + (stats?.rounds ?? 0), 0);
  const lines = actual.flatMap(({ ids }, i) => difference(ids, expected[i]?.ids ?? []) || []);
  different += lines.length;
  const verdict = lines.length === 0 ? "no difference" : `${lines.length} answers ${lines.join("; ")}`;
  const accepted = ((tokens - asked.length) / rounds).toFixed(2);
  console.log(`${name}, ${maxBatch} at a time: ${tokens} tokens, ${accepted} per round, ${seconds()} s: ${verdict}`);
}
pair.dispose();
process.exitCode = different === 0 ? 0 : 1;
