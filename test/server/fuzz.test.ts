/** Thousands of malformed requests: every one is answered, none with a 500, and the server serves the next one. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { at, harness } from "./harness.ts";
import { writes } from "./scripted-engine.ts";

const SEED = 20_261_129;

/** A value of any shape and size that JSON can hold, and some that it cannot. */
const anyJson = fc.oneof(
  fc.jsonValue({ maxDepth: 3 }),
  fc.constantFrom(
    null,
    true,
    0,
    -1,
    1.5,
    1e308,
    2 ** 53,
    "",
    "5",
    [],
    {},
    [[]],
    [null],
    { type: null },
    "\u0000",
    "\ud800",
  ),
);

const chatFields = [
  ...["model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature", "top_p"],
  ...["top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "stop", "seed"],
  ...["n", "ignore_eos", "return_token_ids", "response_format", "grammar", "regex", "choice", "logprobs"],
  ...["top_logprobs", "tools", "tool_choice", "modalities", "enable_thinking", "reasoning_effort", "prompt", "echo"],
  ...["chat_template_kwargs", "suffix", "best_of", "__proto__", "constructor", "toString", "parallel_tool_calls"],
  ...["input", "instructions", "max_output_tokens", "reasoning", "text", "background", "previous_response_id"],
];

const message = fc.dictionary(
  fc.constantFrom("role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content"),
  fc.oneof(anyJson, fc.constantFrom("user", "assistant", "tool", "system")),
);

/** Something like a tool, a choice or an input item, or a part of one. */
const nested = fc.dictionary(
  fc.constantFrom(
    ...[
      "type",
      "name",
      "function",
      "tools",
      "role",
      "content",
      "call_id",
      "arguments",
      "output",
      "summary",
      "parameters",
    ],
    ...["strict", "mode", "allowed_tools", "json_schema", "schema", "format", "effort", "text"],
  ),
  fc.oneof(
    anyJson,
    fc.constantFrom("function", "namespace", "message", "function_call", "function_call_output", "reasoning", "f"),
    fc.constantFrom("allowed_tools", "json_schema", "json_object", "auto", { name: "f" }, [{ name: "f" }]),
  ),
);
const field = fc.oneof(anyJson, nested, fc.array(nested, { maxLength: 3 }));

/** Bodies that are valid but for some fields of the wrong kind. */
const nearlyValid = fc
  .tuple(
    fc.dictionary(fc.constantFrom(...chatFields), field, { maxKeys: 4 }),
    fc.oneof(fc.constant([{ role: "user", content: "hi" }]), fc.array(message, { maxLength: 3 })),
  )
  .map(([fields, messages]) => JSON.stringify({ messages, prompt: "hi", input: messages, max_tokens: 3, ...fields }));

/** Valid JSON with some bytes changed. */
const damaged = fc
  .tuple(nearlyValid, fc.array(fc.tuple(fc.nat(), fc.integer({ min: 0, max: 255 })), { minLength: 1, maxLength: 4 }))
  .map(([text, edits]) => {
    const bytes = new TextEncoder().encode(text);
    for (const [place, value] of edits) bytes[place % bytes.length] = value;
    return bytes;
  });

const body = fc.oneof(
  { weight: 6, arbitrary: nearlyValid },
  { weight: 3, arbitrary: damaged },
  { weight: 1, arbitrary: fc.uint8Array({ maxLength: 64 }) },
);

const path = fc.constantFrom(
  ...["/v1/chat/completions", "/v1/completions", "/chat/completions/", "/completions?x=%zz"],
  ...["/v1/responses", "/responses"],
);

test("4000 malformed bodies", async () => {
  await using h = harness(() => writes("ok"));
  const seen = new Map<number, number>();
  await fc.assert(
    fc.asyncProperty(path, body, async (where, what) => {
      const reply = await h.post(where, what);
      const text = await reply.text();
      seen.set(reply.status, (seen.get(reply.status) ?? 0) + 1);
      expect([200, 400]).toContain(reply.status);
      expect(text).not.toContain("node_modules");
      if (reply.status === 400) expect(at(JSON.parse(text), "error", "type")).toBe("invalid_request_error");
    }),
    { numRuns: 4000, seed: SEED },
  );
  // The generator must reach both sides, or it proves nothing.
  expect(seen.get(200) ?? 0).toBeGreaterThan(200);
  expect(seen.get(400) ?? 0).toBeGreaterThan(1000);
  expect(h.log).toEqual([]);
  expect(h.engine.active).toBe(0);
  const next = await h.post("/v1/chat/completions", { messages: [{ role: "user", content: "hi" }] });
  expect(next.status).toBe(200);
}, 60_000);

test("deeply nested JSON is refused or ignored, not fatal", async () => {
  await using h = harness();
  for (const depth of [1_000, 200_000]) {
    const deep = "[".repeat(depth) + "]".repeat(depth);
    for (const field of ["metadata", "messages", "chat_template_kwargs", "tools", "tool_choice", "response_format"]) {
      const reply = await h.post(
        "/v1/chat/completions",
        `{"messages":[{"role":"user","content":"x"}],"${field}":${deep}}`,
      );
      expect([200, 400]).toContain(reply.status);
      await reply.text();
    }
  }
});

test("odd request lines and headers get an answer or a closed socket, and the server lives", async () => {
  await using h = harness();
  for (const target of [
    "/%E0%A4%A",
    "//v1/models",
    "/v1/models/%00",
    "/v1/../etc/passwd",
    "/?%",
    `/${"a".repeat(8000)}`,
  ]) {
    const reply = await fetch(h.url + target).catch(() => null);
    if (reply !== null) expect(reply.status).toBeLessThan(500);
  }
  expect((await fetch(`${h.url}/health`)).status).toBe(200);
});
