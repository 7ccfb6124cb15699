/**
 * Structured output of the real pair in bulk: fifty prompts with five schemas each, drafting in every way; every text must
 * be an instance of its schema. Beside it, tokens per forward with and without the drafts that a grammar itself gives, and
 * the same ids in both. Ends with 1 when a text is invalid, a token differs, or those drafts cost forwards.
 *
 * Usage: bun bench/speculation/structured.ts [--prompts N]
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import type { GrammarCompiler } from "../../src/decoding/constraint.ts";
import type { GenerateRequest } from "../../src/engine/protocol.ts";
import { request } from "../../test/engine/tiny.ts";
import { openTestMlx } from "../../test/support/native.ts";
import { difference, speculator, type Told } from "../../test/support/pairs.ts";
import { GREEDY } from "../../test/support/sampling.ts";
import { complaint, SCHEMAS, schemaSpec } from "../../test/support/schemas.ts";
import { smollm2Folder } from "../../test/support/smollm2.ts";
import { Structured } from "../../test/support/structured.ts";
import { readPrompts } from "./prompts.ts";

/** Above the longest instance of the schemas. */
const LENGTH = 400;
const BATCH = 2;

const { values: flags } = parseArgs({ options: { prompts: { type: "string", default: "50" } } });
const count = Number(flags.prompts);
if (!Number.isInteger(count) || count < 1) throw new RangeError("--prompts must be a positive integer");

openTestMlx();
const files = join(import.meta.dir, "../../build/bench");
mkdirSync(files, { recursive: true });
const folder = await smollm2Folder(join(files, "smollm2"));
const { prompts, eosIds } = await readPrompts(folder);
const smollm2 = await Structured.open(folder);
const { drafter } = smollm2.pair;

const names = Object.keys(SCHEMAS);
const specs = new Map(names.map((name) => [name, schemaSpec(SCHEMAS[name] ?? {})]));

/** Every third is sampled. */
function requests(): { readonly name: string; readonly asked: GenerateRequest }[] {
  return prompts.slice(0, count).flatMap(({ ids }, i) =>
    names.map((name, j) => {
      const sampled = { ...GREEDY, temperature: 0.7, topP: 0.95, topK: 40, seed: String(i) };
      const sampling = (i + j) % 3 === 2 ? sampled : GREEDY;
      const constraint = specs.get(name) ?? null;
      return { name, asked: request({ promptIds: ids, maxNewTokens: LENGTH, eosIds, sampling, constraint }) };
    }),
  );
}

/** The same engine, whose grammars propose nothing. */
function silent(inner: GrammarCompiler): GrammarCompiler {
  return {
    compile: (spec, done) => inner.compile(spec, done),
    poll: () => inner.poll(),
    open: (compiled, limits) => Object.assign(inner.open(compiled, limits), { forced: () => [] }),
    close: () => inner.close(),
  };
}

async function run(grammars: GrammarCompiler) {
  const all = requests();
  const started = performance.now();
  const policy = speculator({ drafter, cap: 3, lookup: true });
  const results = await smollm2.run(
    all.map(({ asked }) => asked),
    policy,
    BATCH,
    grammars,
  );
  return { all, results, seconds: (performance.now() - started) / 1000 };
}

const sum = (results: readonly Told[], of: (told: Told) => number) =>
  results.reduce((total, told) => total + of(told), 0);
const perForward = (results: readonly Told[]) =>
  sum(results, ({ ids }) => ids.length) / sum(results, ({ stats }) => stats?.targetForwards ?? 0);

const forced = await run(smollm2.pool);
let valid = 0;
for (const [i, { ids, end }] of forced.results.entries()) {
  const { name = "" } = forced.all[i] ?? {};
  const text = smollm2.shown(ids);
  const wrong = end === "stop" ? complaint(SCHEMAS[name] ?? {}, text) : `ended by ${end}: ${text}`;
  if (wrong === "") valid++;
  else console.log(`prompt ${Math.floor(i / names.length)}, ${name}: ${wrong}`);
}
const total = forced.results.length;
const masked = sum(forced.results, ({ stats }) => stats?.grammar?.maskedRows ?? 0);
const maskMs = sum(forced.results, ({ stats }) => stats?.grammar?.maskMs ?? 0);
console.log(`valid: ${valid} of ${total} (${forced.seconds.toFixed(0)} s)`);
console.log(`masked rows ${masked}, cut drafts ${sum(forced.results, ({ stats }) => stats?.grammar?.cutDrafts ?? 0)}`);
console.log(`waiting for the grammar: ${((1000 * maskMs) / masked).toFixed(0)} µs a row`);

const unforced = await run(silent(smollm2.pool));
const different = unforced.results.filter(({ ids }, i) => difference(ids, forced.results[i]?.ids ?? []) !== "").length;
const [withDrafts, without] = [perForward(forced.results), perForward(unforced.results)];
console.log(`tokens per forward: ${withDrafts.toFixed(3)} with forced drafts, ${without.toFixed(3)} without`);
console.log(`texts that differ: ${different}`);
smollm2.close();
if (valid < total || different > 0 || withDrafts < without) process.exitCode = 1;
