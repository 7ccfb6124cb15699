/**
 * The shared HTTP cases whose routes exist: status, envelope, and that the next plain request is served. Their worded
 * predicates are tests of their own in the neighbouring files; cases of routes and fields to come are left out by name.
 */
import { afterAll, describe, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Type as t } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";
import { at, harness } from "./harness.ts";
import { writes } from "./scripted-engine.ts";

const FILE = join(import.meta.dir, "../../../shared/cases/http-cases.json");

const requestSchema = t.Object({
  method: t.String(),
  path: t.String(),
  headers: t.Record(t.String(), t.String()),
  body: t.Optional(t.Unknown()),
  body_text: t.Optional(t.String()),
  body_base64: t.Optional(t.String()),
});
const stepSchema = t.Object({
  request: requestSchema,
  expect: t.Object({ status: t.Union([t.Number(), t.Array(t.Number())]) }),
});
const fileSchema = t.Object({
  cases: t.Array(t.Composite([stepSchema, t.Object({ name: t.String(), also: t.Optional(t.Array(stepSchema)) })])),
});

/** Routes that later issues bring. */
const ROUTES_TO_COME = /^\/(?:v1\/messages|v1\/responses|metrics)/;

function cases() {
  if (!existsSync(FILE)) return [];
  return Value.Parse(fileSchema, JSON.parse(readFileSync(FILE, "utf8"))).cases;
}

const WHY_ABSENT = existsSync(FILE) ? "" : " (the shared folder is not beside the repository)";

describe.skipIf(!existsSync(FILE))(`shared cases${WHY_ABSENT}`, () => {
  const h = harness((request) => writes(`1, 2, 3 (${request.sampling.seed})`));
  afterAll(() => h.stop(0));

  for (const one of cases()) {
    const steps = [one, ...(one.also ?? [])].filter(({ request }) => {
      const body: unknown = request.body;
      return !ROUTES_TO_COME.test(request.path) && at(body, "tools") === undefined;
    });
    test.skipIf(steps.length === 0)(one.name, async () => {
      for (const step of steps) {
        const { method, path, headers, body, body_text, body_base64 } = step.request;
        const sent =
          body_base64 !== undefined ? Buffer.from(body_base64, "base64") : (body_text ?? JSON.stringify(body));
        const reply = await fetch(h.url + path, { method, headers, ...(sent !== undefined && { body: sent }) });
        const text = await reply.text();
        expect([step.expect.status].flat()).toContain(reply.status);
        expect(text).not.toMatch(/\n\s+at |\/src\//);
        if (reply.status >= 400) expect(at(JSON.parse(text), "error", "message")).toBeString();
        const next = await h.post("/v1/chat/completions", { messages: [{ role: "user", content: "hi" }] });
        expect(next.status).toBe(200);
      }
    });
  }
});
