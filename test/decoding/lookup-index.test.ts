import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { LongDraftGate } from "../../src/decoding/lookup-gate.ts";
import { LookupIndex, type LookupOptions } from "../../src/decoding/lookup-index.ts";
import { goldenRoot } from "../support/golden.ts";

interface NgramGolden {
  readonly indexes: readonly {
    readonly min_n: number;
    readonly max_n: number;
    readonly max_draft: number;
    readonly long_draft: number | null;
    readonly feed: readonly number[];
    readonly proposal_after_each: readonly (readonly number[])[];
  }[];
  readonly long_draft_gate: readonly {
    readonly drafted: number;
    readonly accepted: number;
    readonly base: number;
    readonly allowed_before: boolean;
    readonly allowed_after: boolean;
    readonly fails: number;
    readonly rounds_since: number;
  }[];
}

interface LoopsGolden {
  readonly step_function: readonly number[];
  readonly runs: Readonly<
    Record<string, { prompt_ids: number[]; max_new_tokens: number; tokens: number[]; accept_lengths: number[] }>
  >;
}

const read = <T>(path: string) => JSON.parse(readFileSync(join(goldenRoot("drafters"), path), "utf8")) as T;
const golden = read<NgramGolden>("policy/ngram.json");
const loops = read<LoopsGolden>("loops/loops.json");

/** The same search written as a scan over all positions. */
function bruteForce(tokens: readonly number[], options: LookupOptions, long: number | null, limit: number) {
  const end = tokens.length;
  for (let n = options.maxN; n >= options.minN; n--) {
    for (let place = end - 1; place >= n; place--) {
      let matched = 0;
      while (matched < place && tokens[place - 1 - matched] === tokens[end - 1 - matched]) matched++;
      if (matched < n) continue;
      const isLong = long !== null && long > options.maxDraft && matched >= 8;
      const cap = Math.min(isLong ? Math.min(long, 2 * matched) : options.maxDraft, limit);
      const draft: number[] = [];
      for (let i = 0; i < cap; i++) {
        const inside = place + i < end;
        if (!inside && options.selfExtension === false) break;
        draft.push((inside ? tokens[place + i] : draft[i - (end - place)]) as number);
      }
      return draft;
    }
  }
  return null;
}

describe("lookup index", () => {
  test.each(golden.indexes.map((trace, i) => [i, trace] as const))("golden trace %d", (_, trace) => {
    const index = new LookupIndex({
      minN: trace.min_n,
      maxN: trace.max_n,
      maxDraft: trace.max_draft,
      selfExtension: false,
    });
    const proposals = trace.feed.map((token) => {
      index.extend([token]);
      return [...(index.propose(trace.long_draft)?.tokens ?? [])];
    });
    expect(proposals).toEqual(trace.proposal_after_each.map((x) => [...x]));
  });

  test("equals a scan of the whole text", () => {
    fc.assert(
      fc.property(
        // A repeated block among few symbols: both spurious and long matches.
        fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 1, maxLength: 60 }),
        fc.array(fc.integer({ min: 0, max: 3 }), { maxLength: 40 }),
        fc.integer({ min: 1, max: 4 }),
        fc.integer({ min: 0, max: 2 }),
        fc.integer({ min: 1, max: 7 }),
        fc.option(fc.integer({ min: 1, max: 40 })),
        fc.integer({ min: 1, max: 50 }),
        fc.boolean(),
        (block, noise, minN, more, maxDraft, long, limit, selfExtension) => {
          const options = { minN, maxN: minN + more, maxDraft, selfExtension };
          const text = [...block, ...noise, ...block, ...block.slice(0, 20)];
          const index = new LookupIndex(options, text.slice(0, block.length));
          for (let end = block.length; end <= text.length; end++) {
            const found = index.propose(long, limit);
            const wanted = bruteForce(text.slice(0, end), options, long, limit);
            expect(found === null ? null : [...found.tokens]).toEqual(wanted);
            const next = text[end];
            if (next !== undefined) index.extend([next]);
          }
        },
      ),
      { numRuns: 300 },
    );
  });

  test("keeps every place through growth of the tables", () => {
    let state = 1;
    const text = Array.from({ length: 5000 }, () => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return state >>> 24;
    });
    const options = { minN: 2, maxN: 3, maxDraft: 5 };
    const index = new LookupIndex(options, text.slice(0, 4000));
    let hits = 0;
    for (let end = 4000; end < 5000; end++) {
      const found = index.propose();
      const wanted = bruteForce(text.slice(0, end), options, null, 100);
      expect(found === null ? null : [...found.tokens]).toEqual(wanted);
      if (found !== null) hits++;
      index.extend([text[end] as number]);
    }
    expect(hits).toBeGreaterThan(20);
  });

  test("repetition is drafted on past the end of the text", () => {
    const index = new LookupIndex({ minN: 3, maxN: 4, maxDraft: 6 }, [1, 2, 9, 9, 9, 9, 9]);
    expect([...(index.propose()?.tokens ?? [])]).toEqual([9, 9, 9, 9, 9, 9]);
    const period = new LookupIndex({ minN: 3, maxN: 4, maxDraft: 6 }, [1, 2, 3, 1, 2, 3, 1, 2]);
    expect([...(period.propose()?.tokens ?? [])]).toEqual([3, 1, 2, 3, 1, 2]);
  });

  test("reports the length of the match", () => {
    const block = Array.from({ length: 30 }, (_, i) => 100 + i);
    const index = new LookupIndex({ minN: 3, maxN: 4, maxDraft: 6 }, [...block, 7, ...block.slice(0, 12)]);
    expect(index.propose()?.matched).toBe(12);
    const short = new LookupIndex({ minN: 3, maxN: 4, maxDraft: 6 }, [...block, 7, ...block.slice(4, 8)]);
    expect(short.propose()?.matched).toBe(4);
  });

  test("refuses impossible n-gram lengths", () => {
    expect(() => new LookupIndex({ minN: 0, maxN: 2, maxDraft: 6 })).toThrow(RangeError);
    expect(() => new LookupIndex({ minN: 4, maxN: 3, maxDraft: 6 })).toThrow(RangeError);
  });
});

/** Lookup decoding of a target that is a function of its last token. */
function lookupLoop(name: string, base: number, long: number, selfExtension: boolean) {
  const run = loops.runs[name];
  if (run === undefined) throw new Error(`no golden run ${name}`);
  const step = (token: number) => loops.step_function[token] as number;
  const index = new LookupIndex({ minN: 3, maxN: 4, maxDraft: base, selfExtension }, run.prompt_ids);
  const gate = new LongDraftGate();
  const out = [step(run.prompt_ids.at(-1) as number)];
  index.extend(out);
  const lengths: number[] = [];
  while (out.length < run.max_new_tokens) {
    const draft =
      index.propose(gate.allowed ? long : null, run.max_new_tokens - out.length)?.tokens ?? new Int32Array();
    const committed = [step(out.at(-1) as number)];
    while (committed.at(-1) === draft[committed.length - 1]) committed.push(step(committed.at(-1) as number));
    if (draft.length > 0) gate.update(draft.length, committed.length - 1, base);
    lengths.push(committed.length);
    out.push(...committed);
    index.extend(committed);
  }
  return { run, lengths, out: out.slice(0, run.max_new_tokens) };
}

describe("lookup loop on the golden step function", () => {
  test.each([
    ["lookup", 6, 32],
    ["lookup_short", 4, 4],
    ["lookup_absorbing", 6, 32],
  ] as const)("%s: tokens and accept lengths", (name, base, long) => {
    const { run, lengths, out } = lookupLoop(name, base, long, false);
    expect(out).toEqual(run.tokens);
    // The last round may be clipped by the token limit in one way or another.
    expect(lengths.slice(0, -1)).toEqual(run.accept_lengths.slice(0, -1));
  });

  test("self-extension gives the same tokens in fewer rounds", () => {
    const { run, lengths, out } = lookupLoop("lookup_absorbing", 6, 32, true);
    expect(out).toEqual(run.tokens);
    expect(lengths.length).toBeLessThan(run.accept_lengths.length / 2);
  });
});

describe("the token that would make a proposal", () => {
  const text = fc.array(fc.nat({ max: 3 }), { maxLength: 60 });
  const options = fc.nat({ max: 3 }).map((least) => ({ minN: least + 1, maxN: least + 2, maxDraft: 4 }));

  test("makes one when it comes, and where none is expected none follows", () => {
    let expected = 0;
    fc.assert(
      fc.property(text, options, fc.nat({ max: 3 }), (tokens, asked, next) => {
        const token = new LookupIndex(asked, tokens).expected();
        const follows = (id: number) => new LookupIndex(asked, [...tokens, id]).propose() !== null;
        if (asked.minN === 1) expect(token).toBeNull();
        else if (token === null) expect(follows(next)).toBe(false);
        else expect(follows(token)).toBe(true);
        if (token !== null) expected++;
      }),
      { numRuns: 2000, seed: 3 },
    );
    expect(expected).toBeGreaterThan(200);
  });

  test("is the same whether the text came at once or bit by bit", () => {
    fc.assert(
      fc.property(text, options, fc.nat({ max: 60 }), (tokens, asked, cut) => {
        const slowly = new LookupIndex(asked, tokens.slice(0, cut));
        for (const id of tokens.slice(cut)) slowly.extend([id]);
        expect(slowly.expected()).toBe(new LookupIndex(asked, tokens).expected());
      }),
      { numRuns: 300 },
    );
  });
});

describe("gates", () => {
  test("golden trace of the long-draft gate", () => {
    const gate = new LongDraftGate();
    for (const step of golden.long_draft_gate) {
      expect(gate.allowed).toBe(step.allowed_before);
      gate.update(step.drafted, step.accepted, step.base);
      expect([gate.allowed, gate.fails, gate.roundsSince]).toEqual([step.allowed_after, step.fails, step.rounds_since]);
    }
  });
});
