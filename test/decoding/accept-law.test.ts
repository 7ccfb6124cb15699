/**
 * Sampled speculation draws from the target's law and from no other: chi-square of the first two tokens of 200,000
 * requests a setting against the exact law. Copies of the code with one fault each must fail the same test.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as accept from "../../src/decoding/accept.ts";
import * as counting from "../../src/decoding/block-counts.ts";
import { openTestMlx, repoRoot } from "../support/native.ts";
import { chiSquare } from "./chi-square.ts";
import { type Code, exactPairs, fitOf, type Setting } from "./tiny-law.ts";

const DRAWS = 200_000;
/** For a machine that is busy with other things: alone, a setting takes a fraction of a second. */
const TIMEOUT_MS = 60_000;
/** Standard deviations: by chance once in three million; seeds are fixed, so that a pass stays one. */
const Z_MAX = 5;

const OFF = { temperature: 1, topP: 1, topK: 0, minP: 0 };
const plain = { law: OFF, presence: 0, frequency: 0 };
const penalized = { law: OFF, presence: 0.7, frequency: 0.4 };
const narrow = { law: { temperature: 0.8, topP: 0.85, topK: 6, minP: 0.04 }, presence: 0, frequency: 0 };

const SETTINGS: readonly Setting[] = [
  { name: "soft", source: "soft", drafts: 2, ...plain },
  { name: "soft, one draft", source: "soft", drafts: 1, ...plain },
  { name: "soft, truncated target", source: "soft", drafts: 2, ...narrow },
  { name: "soft, penalties", source: "soft", drafts: 2, ...penalized },
  { name: "truncated", source: "truncated", drafts: 2, ...plain },
  {
    name: "truncated, truncated target and penalties",
    source: "truncated",
    drafts: 2,
    ...narrow,
    presence: 0.5,
    frequency: 0.3,
  },
  { name: "certain (lookup)", source: "certain", drafts: 2, ...plain },
  { name: "certain, one draft, truncated target", source: "certain", drafts: 1, ...narrow },
  { name: "certain, penalties", source: "certain", drafts: 2, ...penalized },
  { name: "reduced vocabulary", source: "reduced", drafts: 2, ...plain },
  { name: "reduced vocabulary, truncated target", source: "reduced", drafts: 2, ...narrow },
  { name: "candidates (DFlash 2)", source: "candidates", drafts: 2, ...plain },
  { name: "candidates, penalties", source: "candidates", drafts: 1, ...penalized },
];

const settingNamed = (name: string): Setting => {
  const found = SETTINGS.find((setting) => setting.name === name);
  if (found === undefined) throw new Error(`no setting ${name}`);
  return found;
};

const OURS: Code = { acceptSampled: accept.acceptSampled, blockCounts: counting.blockCounts };

const folder = mkdtempSync(join(tmpdir(), "mutants-"));
afterAll(() => rmSync(folder, { recursive: true }));
beforeAll(openTestMlx);

/** A module of src/decoding with one place changed, loaded beside the real one. */
async function mutant(file: string, from: string, to: string): Promise<unknown> {
  const source = join(repoRoot, "src/decoding");
  const text = readFileSync(join(source, file), "utf8");
  if (text.split(from).length !== 2) throw new Error(`${file} has not exactly one place that reads ${from}`);
  const changed = text
    .replace(from, to)
    .replaceAll('from "../mlx/', `from "${join(source, "../mlx")}/`)
    .replaceAll('from "./', `from "${source}/`);
  const path = join(folder, `${Bun.hash(to + from)}.ts`);
  writeFileSync(path, changed);
  return import(path);
}

const RESIDUAL = 'maximum(subtract(p, rowsAt(law, failedAt)), scalar(0, "float32"))';
const RATIO = 'divide(p, maximum(takeAlongAxis(law, at, -1), scalar(Q_FLOOR, "float32")))';
const LAST = 'scalar(0, "float32")), residual, p)';

interface Mutation {
  readonly name: string;
  readonly file: "accept.ts" | "block-counts.ts";
  readonly from: string;
  readonly to: string;
  /** Settings that must notice. */
  readonly noticed: readonly string[];
}

const MUTATIONS: readonly Mutation[] = [
  {
    name: "replacement from p instead of the residual",
    file: "accept.ts",
    from: RESIDUAL,
    to: "p",
    noticed: ["soft", "soft, one draft", "truncated", "reduced vocabulary", "candidates (DFlash 2)"],
  },
  {
    name: "replacement from q instead of the residual",
    file: "accept.ts",
    from: RESIDUAL,
    to: "rowsAt(law, failedAt)",
    noticed: ["soft", "candidates (DFlash 2)"],
  },
  {
    name: "acceptance by p alone",
    file: "accept.ts",
    from: RATIO,
    to: "p",
    noticed: ["soft", "truncated", "reduced vocabulary", "candidates (DFlash 2)"],
  },
  {
    name: "every draft accepted",
    file: "accept.ts",
    from: "greaterEqual(uniform, reshape(ratio, [blocks, drafts]))",
    to: "greater(uniform, add(reshape(ratio, [blocks, drafts]), scalar(2, 'float32')))",
    noticed: ["soft", "certain (lookup)"],
  },
  {
    name: "bonus from q",
    file: "accept.ts",
    from: LAST,
    to: 'scalar(0, "float32")), residual, law === null ? p : rowsAt(law, failedAt))',
    noticed: ["soft, one draft", "candidates, penalties"],
  },
  {
    name: "a certain draft stays in the residual",
    file: "accept.ts",
    from: 'zeros([blocks, 1], "float32"),\n          -1,',
    to: "takeAlongAxis(p, takeAlongAxis(astype(draft, 'int32'), reshape(failedAt, [blocks, 1]), 1), -1),\n          -1,",
    noticed: ["certain (lookup)", "certain, one draft, truncated target"],
  },
  {
    name: "penalties that count the draft of their own row",
    file: "block-counts.ts",
    from: "i % drafts < Math.floor(i / drafts)",
    to: "i % drafts <= Math.floor(i / drafts)",
    noticed: ["soft, penalties", "certain, penalties"],
  },
  {
    name: "penalties that forget the block",
    file: "block-counts.ts",
    from: "? 1 : 0",
    to: "? 0 : 0",
    noticed: ["soft, penalties", "certain, penalties"],
  },
];

describe("the law of sampled speculation", () => {
  test.each(SETTINGS.map((setting, i) => [setting.name, setting, BigInt(1000 + i)] as const))(
    "%s",
    (_, setting, seed) => {
      const { z, impossible } = fitOf(OURS, setting, DRAWS, seed);
      expect(impossible).toBe(0);
      expect(z).toBeLessThan(Z_MAX);
    },
    TIMEOUT_MS,
  );

  test("the exact laws are laws, and truncation and penalties change them", () => {
    const laws = SETTINGS.map(exactPairs);
    for (const law of laws) expect(law.reduce((sum, x) => sum + x, 0)).toBeCloseTo(1, 12);
    expect(exactPairs(settingNamed("soft, truncated target")).filter((x) => x === 0).length).toBeGreaterThan(8);
    expect(exactPairs(settingNamed("soft, penalties"))).not.toEqual(exactPairs(settingNamed("soft")));
  });
});

describe("a fault is noticed", () => {
  test.each(MUTATIONS.map((mutation) => [mutation.name, mutation] as const))(
    "%s",
    async (_, mutation) => {
      const changed = (await mutant(mutation.file, mutation.from, mutation.to)) as Partial<Code>;
      const code: Code = { ...OURS, ...pickCode(changed) };
      for (const name of mutation.noticed) {
        const { z, impossible } = fitOf(code, settingNamed(name), DRAWS / 4, 77n);
        expect(impossible > 0 || z > 2 * Z_MAX).toBe(true);
      }
    },
    TIMEOUT_MS,
  );

  test("an unchanged copy passes: the copying changes nothing", async () => {
    const copy = (await mutant("accept.ts", RATIO, `(${RATIO})`)) as Partial<Code>;
    const { z, impossible } = fitOf({ ...OURS, ...pickCode(copy) }, settingNamed("soft"), DRAWS / 4, 77n);
    expect(impossible).toBe(0);
    expect(z).toBeLessThan(Z_MAX);
  });
});

function pickCode({ acceptSampled, blockCounts }: Partial<Code>): Partial<Code> {
  return { ...(acceptSampled && { acceptSampled }), ...(blockCounts && { blockCounts }) };
}

test("chi-square: fair counts pass, a bias of five percent does not", () => {
  const fair = [0.25, 0.25, 0.25, 0.25];
  expect(chiSquare([25_100, 24_900, 25_050, 24_950], fair).z).toBeLessThan(2);
  expect(chiSquare([26_250, 24_583, 24_584, 24_583], fair).z).toBeGreaterThan(5);
  expect(chiSquare([100, 90, 5], [0.5, 0.5, 0]).impossible).toBe(5);
});
