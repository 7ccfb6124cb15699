/**
 * The shared HTTP cases (`test/data/http/http-cases.json`) as data: read, sent, and judged. A case's rule is in words; what it
 * means in code stands under the case's name in `http-predicates.ts`, and a case without that is an error.
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type Static, Type as t } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";
import { Reply } from "./http-reply.ts";
import { repoRoot } from "./native.ts";

const closed = { additionalProperties: false };

const requestSchema = t.Object(
  {
    method: t.String(),
    path: t.String(),
    headers: t.Record(t.String(), t.String()),
    body: t.Optional(t.Unknown()),
    body_text: t.Optional(t.String()),
    body_base64: t.Optional(t.String()),
    close_after_ms: t.Optional(t.Number()),
  },
  closed,
);

const stepFields = {
  request: requestSchema,
  expect: t.Object({ status: t.Union([t.Number(), t.Array(t.Number())]), predicate: t.String() }, closed),
};
const stepSchema = t.Object(stepFields, closed);
const caseSchema = t.Object(
  { name: t.String(), area: t.String(), ...stepFields, also: t.Optional(t.Array(stepSchema)) },
  closed,
);
const fileSchema = t.Object({ cases: t.Array(caseSchema) });

export type Step = Static<typeof stepSchema>;

export interface HttpCase {
  readonly name: string;
  readonly steps: readonly Step[];
}

/** Cases of the repository, and those of the shared folder where it is beside it. */
export function httpCases(): HttpCase[] {
  const cases = new Map<string, HttpCase>();
  for (const file of [
    join(repoRoot, "test/data/http/http-cases.json"),
    join(repoRoot, "../shared/cases/http-cases.json"),
  ]) {
    if (!existsSync(file)) continue;
    for (const { name, request, expect, also } of Value.Parse(fileSchema, JSON.parse(readFileSync(file, "utf8")))
      .cases) {
      cases.set(name, { name, steps: [{ request, expect }, ...(also ?? [])] });
    }
  }
  return [...cases.values()];
}

/** A server under test. */
export interface CaseServer {
  readonly url: string;
  /** Must not be in any reply. */
  readonly secrets: readonly string[];
  alive(): boolean;
}

/** What a predicate judges: the replies of a case, and the same requests again with a change. */
export interface CaseRun {
  readonly replies: readonly Reply[];
  /** Sends step `index` with its body changed. */
  again(index: number, change: (body: Record<string, unknown>) => object): Promise<Reply>;
}

export type Predicate = (run: CaseRun) => void | Promise<void>;

/** Sends all steps of a case and checks what every case requires; the predicate is the caller's. */
export async function runCase(one: HttpCase, server: CaseServer): Promise<CaseRun> {
  const model = await loadedModel(server.url);
  const replies: Reply[] = [];
  for (const step of one.steps) {
    const reply = await send(expand(step.request, model, server.url), server.url);
    requireThat(
      [step.expect.status].flat().includes(reply.status),
      `status ${reply.status}: ${reply.text.slice(0, 300)}`,
    );
    requireThat(!/\n\s+at /.test(reply.text), "a stack trace is in the reply");
    for (const secret of server.secrets) requireThat(!reply.text.includes(secret), `${secret} is in the reply`);
    requireThat(server.alive(), "the process has ended");
    const next = await send(PLAIN, server.url);
    requireThat(next.status === 200, `the next plain request gives ${next.status}`);
    replies.push(reply);
  }
  return {
    replies,
    again: (index, change) => {
      const step = one.steps[index];
      if (step === undefined) throw new Error(`${one.name} has no step ${index}`);
      const request = expand(step.request, model, server.url);
      return send({ ...request, body: change(bodyOf(request)) }, server.url);
    },
  };
}

const PLAIN: Step["request"] = {
  method: "POST",
  path: "/v1/chat/completions",
  headers: { "Content-Type": "application/json" },
  body: { messages: [{ role: "user", content: "hi" }], max_tokens: 2 },
};

async function send(request: Step["request"], origin: string): Promise<Reply> {
  const { method, path, headers, close_after_ms: closeAfterMs } = request;
  const leave = new AbortController();
  const body = bytesOf(request);
  const started = performance.now();
  const reply = await fetch(origin + path, {
    method,
    headers,
    signal: leave.signal,
    ...(body !== undefined && { body }),
  });
  let firstByteMs: number | null = null;
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of reply.body ?? []) {
    firstByteMs ??= performance.now() - started;
    text += decoder.decode(chunk, { stream: true });
    if (closeAfterMs === undefined) continue;
    await Bun.sleep(closeAfterMs);
    break;
  }
  leave.abort();
  return new Reply(reply.status, reply.headers, text + decoder.decode(), firstByteMs ?? performance.now() - started);
}

function bytesOf({ body, body_text, body_base64 }: Step["request"]): string | Buffer | undefined {
  if (body_base64 !== undefined) return Buffer.from(body_base64, "base64");
  return body_text ?? (body === undefined ? undefined : JSON.stringify(body));
}

function bodyOf({ body }: Step["request"]): Record<string, unknown> {
  return Value.Parse(t.Record(t.String(), t.Unknown()), body);
}

function expand(request: Step["request"], model: string, origin: string): Step["request"] {
  const text = JSON.stringify(request)
    .replaceAll(/\$\{model\}/g, () => model)
    .replaceAll(/\$\{origin\}/g, () => origin)
    .replaceAll(/\$\{repeat:(.*?):(\d+)\}/g, (_, what: string, times: string) => what.repeat(Number(times)));
  return Value.Parse(requestSchema, JSON.parse(text));
}

async function loadedModel(origin: string): Promise<string> {
  const reply = await send({ method: "GET", path: "/v1/models", headers: {} }, origin);
  return String(reply.at("data", 0, "id"));
}

function requireThat(holds: boolean, otherwise: string): void {
  if (!holds) throw new Error(otherwise);
}
