/**
 * The Python mlx-dspark's recorded answers on these routes beside ours for the same bodies: equal but for what
 * http-anthropic.md decides otherwise, each difference by name.
 */
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Type as t } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";
import { at } from "../harness.ts";
import { streamEvents } from "./events.ts";
import { templateServer } from "./template-server.ts";

const recordedSchema = t.Object({
  cases: t.Array(
    t.Object({
      name: t.String(),
      path: t.String(),
      status: t.Number(),
      body: t.Record(t.String(), t.Unknown()),
      response: t.Optional(t.Record(t.String(), t.Unknown())),
      events: t.Optional(t.Array(t.Object({ event: t.String(), data: t.Record(t.String(), t.Unknown()) }))),
    }),
  ),
});

const FILE = join(import.meta.dir, "../../data/http/python-messages.json");
const { cases } = Value.Parse(recordedSchema, JSON.parse(readFileSync(FILE, "utf8")));
const ANSWER = "The capital of France is Paris.";

async function ours(name: string) {
  const recorded = cases.find((one) => one.name === name);
  if (recorded === undefined) throw new Error(`no recorded case ${name}`);
  await using server = templateServer([ANSWER], { apiKey: name.startsWith("auth") ? "secret" : null });
  if (name.startsWith("nm_")) server.engine.status = { state: "no_model" };
  // The tests' tokenizer knows few words: the same text takes more tokens.
  const limit = "max_tokens" in recorded.body && { max_tokens: 1000 };
  const reply = await server.post(recorded.path, { ...recorded.body, ...limit });
  expect(reply.status).toBe(recorded.status);
  return { recorded, text: await reply.text() };
}

/** What a message says; ids, counts of another tokenizer and our further keys apart. */
const said = (message: unknown) =>
  ["type", "role", "model", "content", "stop_reason", "stop_sequence"].map((key) => at(message, key));

test("a message", async () => {
  const { recorded, text } = await ours("msg");
  const message: unknown = JSON.parse(text);
  expect(said(message)).toEqual(said(recorded.response));
  expect(Object.keys(Object(message))).toEqual([...Object.keys(recorded.response ?? {}), "x_mlx_dspark"]);
  // The split of the prompt is ours: the peer has no keys for the cache.
  expect(Object.keys(Object(at(message, "usage"))).filter((key) => !key.startsWith("cache_"))).toEqual(
    Object.keys(Object(at(recorded.response, "usage"))),
  );
});

test("a stream: the same events, with the text in pieces of its own", async () => {
  const { recorded, text } = await ours("msg_stream");
  const events = streamEvents(text);
  const theirs = recorded.events ?? [];
  const names = (all: typeof theirs) => all.map(({ event }) => event).filter((name, i, list) => name !== list[i - 1]);
  expect(names(events)).toEqual(names(theirs));
  const words = (all: typeof theirs) => all.map(({ data }) => at(data, "delta", "text") ?? "").join("");
  expect(words(events)).toBe(words(theirs));
  const edges = (all: typeof theirs) => [
    said(at(all[0]?.data, "message")),
    at(all.at(-2)?.data, "delta"),
    at(all[2]?.data, "content_block"),
    all.at(-1)?.data,
  ];
  expect(edges(events)).toEqual(edges(theirs));
});

test("a stop sequence: the same text, but reported, and white space as it came", async () => {
  const { recorded, text } = await ours("msg_stop");
  const message: unknown = JSON.parse(text);
  expect(at(message, "content", 0, "text")).toBe(`${at(recorded.response, "content", 0, "text")} `);
  expect([at(message, "stop_reason"), at(message, "stop_sequence")]).toEqual(["stop_sequence", "Paris"]);
});

test.each(["msg_bad", "count_bad", "auth_msg_none"])("%s: the same error, with the request's id", async (name) => {
  const { recorded, text } = await ours(name);
  const { request_id: id, ...error } = Object(JSON.parse(text));
  expect(error).toEqual(recorded.response);
  expect(id).toMatch(/^req_/);
});

test("no model: the same status and sense, in this dialect's envelope", async () => {
  const { recorded, text } = await ours("nm_msg");
  const error: unknown = JSON.parse(text);
  expect([at(error, "type"), at(error, "error", "type")]).toEqual(["error", "api_error"]);
  expect(String(at(recorded.response, "error", "message"))).toStartWith("no model is loaded");
  expect(String(at(error, "error", "message"))).toStartWith("no model is loaded");
});

test("count_tokens: the same shape", async () => {
  const { recorded, text } = await ours("count");
  const counted: unknown = JSON.parse(text);
  expect(Object.keys(Object(counted))).toEqual(Object.keys(recorded.response ?? {}));
  // The peer's template does not render the tool, ours does.
  expect(Number(at(counted, "input_tokens"))).toBeGreaterThan(Number(at(recorded.response, "input_tokens")));
});
