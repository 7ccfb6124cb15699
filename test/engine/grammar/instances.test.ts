/** Whatever a model writes under the grammar of a schema is an instance of it: random schemas, random logits, ajv as judge. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { GrammarError, textConstraint } from "../../../src/text/index.ts";
import { GrammarWalker } from "../../support/grammar-walk.ts";
import { judge, schemas } from "../../support/json-schemas.ts";
import { fixtureTokenizer } from "../../text/fixtures.ts";

/** Those that can spell any text; the others could not write every key. */
const KINDS = ["qwen", "llama3", "gemma", "llama2"] as const;
const NO_THOUGHTS = { kind: "none" } as const;

function constraintOf(schema: unknown) {
  return textConstraint({
    format: { kind: "json_schema", schema, strict: true },
    calls: null,
    thoughts: NO_THOUGHTS,
    controlId: () => undefined,
  });
}

test("texts of random schemas are instances", async () => {
  const walkers = KINDS.map((kind) => new GrammarWalker(fixtureTokenizer(kind)));
  let finished = 0;
  let walks = 0;
  await fc.assert(
    fc.asyncProperty(schemas, fc.nat(), fc.nat(KINDS.length - 1), async (schema, seed, kind) => {
      let constraint: ReturnType<typeof constraintOf>;
      try {
        constraint = constraintOf(schema);
      } catch (error) {
        // Contradictions that the generator did not mean; the texts of the others are what is tested.
        fc.pre(!(error instanceof GrammarError));
        throw error;
      }
      const walker = walkers[kind];
      if (constraint === null || walker === undefined) throw new Error("no constraint");
      const eosId = walker.tokenizer.eosIds.at(-1) ?? -1;
      const { text, ended, ids } = await walker.walk(constraint, { seed, eosId });
      walks++;
      const control = new Set(walker.tokenizer.control.map(({ id }) => id));
      expect(ids.filter((id) => control.has(id))).toEqual([]);
      if (!ended) return;
      finished++;
      // Bytes that are no UTF-8 show as several characters; tokens of single bytes can write them.
      if (text.includes("\ufffd")) return;
      const value: unknown = JSON.parse(text);
      const ajv = judge();
      const valid = ajv.validate(schema, value);
      expect(valid ? "" : `${ajv.errorsText()} in ${text}`).toBe("");
    }),
    { numRuns: 200 },
  );
  expect(finished / walks).toBeGreaterThan(0.8);
}, 240_000);
