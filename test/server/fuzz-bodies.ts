/**
 * Requests that no client means: bodies that are valid but for some fields, damaged ones, noise; over every route, with
 * odd queries and headers. What JSON text can hold and no writer writes (NaN, numbers beyond all bounds, halves of
 * surrogates, duplicate keys, depth) is put into the text itself.
 */
import fc from "fast-check";

/** A value of any shape and size that JSON can hold, and some that it cannot. */
const anyJson = fc.oneof(
  { weight: 5, arbitrary: fc.jsonValue({ maxDepth: 3 }) },
  {
    weight: 5,
    arbitrary: fc.constantFrom(
      ...[null, true, 0, -1, 1.5, 1e308, -0, 2 ** 53, "", "5", [], {}, [[]], [null], { type: null }],
      ...["\u0000", "\ud800", "a\udfffb", "\u2028", "<|im_start|>", "x".repeat(5000)],
    ),
  },
);

/** Top-level names of all dialects and of the admin routes, and names that objects have anyway. */
const FIELDS = [
  ...["model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature", "top_p"],
  ...["top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "stop", "seed"],
  ...["n", "ignore_eos", "return_token_ids", "response_format", "grammar", "regex", "choice", "logprobs"],
  ...["top_logprobs", "tools", "tool_choice", "modalities", "enable_thinking", "reasoning_effort", "prompt", "echo"],
  ...["chat_template_kwargs", "suffix", "best_of", "__proto__", "constructor", "toString", "parallel_tool_calls"],
  ...["input", "instructions", "max_output_tokens", "reasoning", "text", "background", "previous_response_id"],
  ...["system", "stop_sequences", "thinking", "metadata", "output_config", "container", "mcp_servers", "betas"],
  ...[
    "mode",
    "drafter",
    "max_draft",
    "kv_bits",
    "context_window",
    "force",
    "warmup",
    "cleanup",
    "cpu_split",
    "small_m",
  ],
  ...["lookup_drafts", "lookup_long_draft", "confidence_threshold", "drafter_bits", "drafter_window", "memory_guard"],
];

const ROLES = ["user", "assistant", "tool", "system", "developer"];
const PARTS = [
  ...["text", "image", "image_url", "thinking", "tool_use", "tool_result", "input_text", "output_text", "document"],
  ...["function", "namespace", "message", "function_call", "function_call_output", "reasoning", "allowed_tools"],
  ...["json_schema", "json_object", "auto", "any", "none", "ephemeral", "enabled", "disabled", "f"],
];

/** Something like a message, a part, a tool, a choice or an input item, or some of one. */
const nested = fc.dictionary(
  fc.constantFrom(
    ...["type", "name", "function", "tools", "role", "content", "call_id", "arguments", "output", "summary", "id"],
    ...["parameters", "strict", "mode", "allowed_tools", "json_schema", "schema", "format", "effort", "text", "input"],
    ...["tool_calls", "tool_call_id", "reasoning_content", "tool_use_id", "is_error", "source", "cache_control"],
    ...["budget_tokens", "thinking", "signature", "input_schema", "description", "required", "properties", "$ref"],
  ),
  fc.oneof(
    anyJson,
    fc.constantFrom(...ROLES, ...PARTS),
    fc.constantFrom({ name: "f" }, [{ name: "f" }], { type: "object" }, [{ type: "text", text: "x" }]),
  ),
);
const field = fc.oneof(anyJson, nested, fc.array(nested, { maxLength: 3 }));

/** Bodies that are valid for some route but for some fields of the wrong kind. */
const nearlyValid = fc
  .tuple(
    // With many of them hardly any request would get past the first check.
    fc.dictionary(fc.constantFrom(...FIELDS), field, { maxKeys: 2 }),
    fc.oneof(
      { weight: 3, arbitrary: fc.constant([{ role: "user", content: "hi" }]) },
      { weight: 1, arbitrary: fc.array(nested, { maxLength: 3 }) },
    ),
    fc.boolean(),
    // Responses refuse a prompt, completions need one.
    fc.constantFrom({ prompt: "hi" }, {}),
  )
  .map(([fields, messages, stream, prompt]) =>
    JSON.stringify({ model: "m", messages, input: messages, max_tokens: 3, stream, ...prompt, ...fields }),
  );

/** Texts that stand for values and are none, or none that a number can hold. */
const RAW = [
  ...["NaN", "Infinity", "-Infinity", "undefined", "1e999", "-1e999", "9".repeat(400), "0.1e-999", "01", "+1", "1."],
  ...['"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\\x41"', "'x'", "// c", "{", "]", '{"a":1,"a":[]}', "\u00a0"],
];

/** A valid body with one value's text replaced, or nested beyond all sense. */
const rawValues = fc
  .tuple(
    nearlyValid,
    fc.constantFrom(...FIELDS),
    fc.oneof(
      fc.constantFrom(...RAW),
      fc.integer({ min: 1, max: 4000 }).map((depth) => "[".repeat(depth) + "]".repeat(depth)),
      fc.integer({ min: 1, max: 4000 }).map((depth) => `${'{"a":'.repeat(depth)}1${"}".repeat(depth)}`),
    ),
  )
  .map(([text, name, raw]) => `{"${name}":${raw},${text.slice(1)}`);

/** Valid JSON with some bytes changed, cut off, or with a mark of its order before it. */
const damaged = fc
  .tuple(
    fc.oneof(nearlyValid, rawValues),
    fc.array(fc.tuple(fc.nat(), fc.integer({ min: 0, max: 255 })), { minLength: 1, maxLength: 4 }),
    fc.constantFrom("edit", "edit", "cut", "mark"),
  )
  .map(([text, edits, how]) => {
    const bytes = new TextEncoder().encode(how === "mark" ? `\ufeff${text}` : text);
    if (how === "cut") return bytes.slice(0, (edits[0]?.[0] ?? 0) % bytes.length);
    if (how === "edit") for (const [place, value] of edits) bytes[place % bytes.length] = value;
    return bytes;
  });

const body: fc.Arbitrary<string | Uint8Array<ArrayBuffer>> = fc.oneof(
  { weight: 6, arbitrary: nearlyValid },
  { weight: 2, arbitrary: rawValues },
  { weight: 3, arbitrary: damaged },
  { weight: 1, arbitrary: fc.uint8Array({ maxLength: 64 }).map((bytes) => new Uint8Array(bytes)) },
  { weight: 1, arbitrary: fc.json().map((text) => text) },
);

const POSTS = [
  ...["/v1/chat/completions", "/v1/completions", "/chat/completions/", "/v1/responses", "/responses"],
  ...["/v1/messages", "/messages", "/v1/messages/count_tokens"],
  ...["/admin/load", "/admin/load/cancel", "/admin/unload"],
];
const GETS = [
  ...["/", "/health", "/metrics", "/machine", "/doctor", "/calibration", "/rounds", "/v1/models", "/openapi/json"],
  ...["/admin/status", "/admin/models", "/admin/integrations", "/v1/models/m", "/v1/responses/resp_1", "/nowhere"],
];

const query = fc.oneof(
  { weight: 4, arbitrary: fc.constant("") },
  {
    weight: 1,
    arbitrary: fc.constantFrom("?x=%zz", "?limit=%ff", "?format=prometheus", "?limit=1e9", "?", "?beta=true"),
  },
  { weight: 1, arbitrary: fc.webQueryParameters().map((text) => `?limit=${text}`) },
);
const headers = fc.dictionary(
  fc.constantFrom("content-type", "accept", "x-priority", "anthropic-version", "anthropic-beta", "authorization"),
  fc.constantFrom(
    "",
    "application/json",
    "text/plain",
    "low",
    "multipart/form-data; boundary=x",
    "*/*",
    "Bearer ",
    "é",
  ),
  { maxKeys: 2 },
);

export interface FuzzRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Uint8Array<ArrayBuffer> | null;
}

export const fuzzRequest: fc.Arbitrary<FuzzRequest> = fc.oneof(
  {
    weight: 12,
    arbitrary: fc.record({
      method: fc.constant("POST"),
      path: fc.tuple(fc.constantFrom(...POSTS), query).map(([path, rest]) => path + rest),
      headers,
      body,
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      method: fc.constantFrom("GET", "GET", "GET", "PUT", "DELETE", "PATCH", "POST"),
      path: fc.tuple(fc.constantFrom(...GETS, ...POSTS), query).map(([path, rest]) => path + rest),
      headers,
      body: fc.constant(null),
    }),
  },
);
