/** Malformed bodies on the Messages routes: always an answer in this dialect's form, never a 500, never an exit. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { at, harness } from "../harness.ts";
import { writes } from "../scripted-engine.ts";
import { anyContent } from "./arbitrary.ts";
import { accumulated, streamEvents } from "./events.ts";

const SEED = 20_261_130;
const PATHS = ["/v1/messages", "/messages?beta=true", "/v1/messages/count_tokens", "/v1/messages/"];

const anything = fc.oneof(
  fc.jsonValue({ maxDepth: 2 }),
  fc.constantFrom(null, true, 0, -1, 1.5, 1e308, 2 ** 53, "", [], {}, [[]], [null], { type: null }, "\u0000", "\ud800"),
);
const turn = fc.record({ role: fc.constantFrom("user", "assistant", "system", "tool"), content: anyContent() });
const tool = fc.record({ name: anything, input_schema: anything, type: anything, defer_loading: anything });
const fields = fc.record(
  {
    messages: fc.oneof(fc.array(turn, { maxLength: 4 }), anything),
    system: fc.oneof(anyContent(), anything),
    tools: fc.oneof(fc.array(tool, { maxLength: 3 }), anything),
    tool_choice: fc.oneof(
      fc.record({ type: fc.constantFrom("auto", "any", "tool", "none"), name: anything }),
      anything,
    ),
    thinking: fc.oneof(fc.record({ type: anything }), anything),
    output_config: fc.oneof(fc.record({ effort: anything }), anything),
    stop_sequences: fc.oneof(fc.array(fc.string()), anything),
    max_tokens: fc.oneof(fc.integer(), anything),
    stream: fc.oneof(fc.boolean(), anything),
    metadata: anything,
    __proto__: anything,
    constructor: anything,
  },
  { requiredKeys: [] },
);
const good = fc.record({ messages: fc.constant([{ role: "user", content: "hi" }]), stream: fc.boolean() });
/** One or two odd fields in a body that is good otherwise. */
const nearlyGood = fc
  .tuple(good, fields, fc.array(fc.nat(20), { minLength: 1, maxLength: 2 }))
  .map(([whole, odd, which]) => {
    const entries = Object.entries(odd);
    const kept = which.flatMap((at) => entries.slice(at % Math.max(1, entries.length)).slice(0, 1));
    return JSON.stringify({ ...whole, ...Object.fromEntries(kept) });
  });
const body = fc.oneof(
  nearlyGood,
  fc.tuple(fields, good).map(([odd, whole]) => JSON.stringify({ ...whole, ...odd })),
  fc.tuple(good, fields).map(([whole, odd]) => JSON.stringify({ ...odd, ...whole })),
  fc.string(),
);

test("1500 malformed bodies", async () => {
  await using h = harness(() => writes("ok"));
  const seen = new Map<number, number>();
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...PATHS), body, async (path, what) => {
      const reply = await h.post(path, what);
      const text = await reply.text();
      seen.set(reply.status, (seen.get(reply.status) ?? 0) + 1);
      expect([200, 400]).toContain(reply.status);
      expect(reply.headers.get("request-id")).toMatch(/^req_/);
      if (reply.headers.get("content-type")?.startsWith("text/event-stream")) {
        accumulated(streamEvents(text));
        return;
      }
      const json: unknown = JSON.parse(text);
      if (reply.status === 400) {
        expect([at(json, "type"), at(json, "error", "type")]).toEqual(["error", "invalid_request_error"]);
      } else if (path.includes("count")) expect(at(json, "input_tokens")).toBeNumber();
      else expect(at(json, "type")).toBe("message");
    }),
    { numRuns: 1500, seed: SEED },
  );
  // The generator must reach both sides, or it proves nothing.
  expect(seen.get(200) ?? 0).toBeGreaterThan(100);
  expect(seen.get(400) ?? 0).toBeGreaterThan(500);
  expect(h.log).toEqual([]);
  expect(h.engine.active).toBe(0);
}, 60_000);

test("deep nesting is refused or ignored wherever it is", async () => {
  await using h = harness();
  const wrap = (open: string, close: string, depth: number) => `${open.repeat(depth)}1${close.repeat(depth)}`;
  for (const depth of [1_000, 100_000]) {
    const deep = wrap('{"a":', "}", depth);
    const blocks = wrap('[{"type":"search_result","content":', "}]", depth);
    const documents = wrap('[{"type":"document","source":{"type":"content","content":', "}}]", depth);
    const contents = [
      `[{"type":"tool_use","name":"f","input":${deep}}]`,
      `[{"type":"tool_result","content":${blocks}},{"type":"text","text":"x"}]`,
      ...[blocks, documents, deep],
    ];
    const turns = contents.map((content) => `"messages":[{"role":"assistant","content":${content}}]`);
    const others = ["metadata", "system", "tools", "thinking", "output_config"].map(
      (field) => `"messages":[{"role":"user","content":"x"}],"${field}":${deep}`,
    );
    const schema = `"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f","input_schema":${deep}}]`;
    for (const part of [...turns, ...others, schema]) {
      for (const path of ["/v1/messages", "/v1/messages/count_tokens"]) {
        const reply = await h.post(path, `{${part}}`);
        expect([200, 400]).toContain(reply.status);
        await reply.text();
      }
    }
  }
  expect(h.log).toEqual([]);
}, 60_000);
