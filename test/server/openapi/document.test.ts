/** The document of `/openapi`: whole, and one truth with the routes and the checks of requests. */
import { expect, test } from "bun:test";
import { Type as t } from "@sinclair/typebox";
import { Ajv2020 } from "ajv/dist/2020.js";
import { openApiDocument } from "../../../src/server/openapi/document.ts";
import { type Operation, openApiOf } from "../../support/published.ts";
import { adminHarness } from "../admin/admin-harness.ts";
import { at } from "../harness.ts";

async function document() {
  await using h = await adminHarness();
  return await openApiOf(h.url);
}

/** All objects inside a value, with the place of each. */
function* objects(value: unknown, place = "#"): Generator<readonly [place: string, object: object]> {
  if (typeof value !== "object" || value === null) return;
  yield [place, value];
  for (const [key, inner] of Object.entries(value)) yield* objects(inner, `${place}/${key}`);
}

const METHODS = ["get", "post"];

test("is OpenAPI 3.1: info, paths with operations, components, and nothing else", async () => {
  const api = await document();
  expect(api.openapi).toMatch(/^3\.1\.\d+$/);
  expect(api.info).toMatchObject({ title: "mlx-dspark", version: "9.9.9" });
  expect(Object.keys(api).sort()).toEqual(["components", "info", "openapi", "paths"]);
  for (const [path, operations] of Object.entries(api.paths)) {
    expect(path).toStartWith("/");
    for (const [method, operation] of Object.entries(operations)) {
      expect(METHODS).toContain(method);
      const known = ["operationId", "tags", "summary", "parameters", "requestBody", "responses"];
      expect(known).toEqual(expect.arrayContaining(Object.keys(operation)));
    }
  }
});

test("every reference leads somewhere, and every component is used", async () => {
  const api = await document();
  const used = new Set<string>();
  for (const [place, object] of objects(api)) {
    if (!("$ref" in object)) continue;
    const [, name] = /^#\/components\/schemas\/(\w+)$/.exec(String(object.$ref)) ?? [];
    expect([place, api.components.schemas[name ?? ""]]).toEqual([place, expect.anything()]);
    // Beside a reference nothing else is said.
    expect(Object.keys(object)).toEqual(["$ref"]);
    used.add(name ?? "");
  }
  expect([...used].sort()).toEqual(Object.keys(api.components.schemas).sort());
});

test("every operation has a name of its own, a summary, and answers with content for success and both kinds of failure", async () => {
  const { paths } = await document();
  const all = Object.entries(paths).flatMap(([path, operations]) =>
    Object.values(operations).map((operation): [string, Operation] => [path, operation]),
  );
  expect(new Set(all.map(([, { operationId }]) => operationId)).size).toBe(all.length);
  expect(all.length).toBeGreaterThan(15);
  for (const [path, { operationId, summary, responses, parameters = [] }] of all) {
    expect(operationId).toMatch(/^[a-z]+[A-Za-z0-9]+$/);
    expect(summary).not.toBe("");
    expect(Object.keys(responses)).toEqual(["200", "4XX", "5XX"]);
    for (const { description, content } of Object.values(responses)) {
      expect(description).not.toBe("");
      expect(Object.keys(content).length).toBeGreaterThan(0);
      for (const { schema } of Object.values(content)) expect(Object.keys(schema)).not.toEqual([]);
    }
    const isAnthropic = path.startsWith("/v1/messages");
    const error = {
      "application/json": { schema: { $ref: `#/components/schemas/${isAnthropic ? "MessagesError" : "Error"}` } },
    };
    expect([responses["4XX"]?.content, responses["5XX"]?.content]).toEqual([error, error]);
    const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
    expect(parameters.filter((one) => one.in === "path").map(({ name }) => name)).toEqual(inPath as string[]);
  }
});

test("its schemas are JSON schemas", async () => {
  const api = await document();
  const ajv = new Ajv2020({ strict: false });
  const schemas = [...objects(api)].flatMap(([place, object]): [string, object][] => {
    const schema = /\/(?:content\/[^#]+|parameters\/\d+)$/.test(place) && "schema" in object ? object.schema : null;
    return typeof schema === "object" && schema !== null ? [[place, schema]] : [];
  });
  expect(schemas.length).toBeGreaterThan(40);
  for (const [place, schema] of [...schemas, ...Object.entries(api.components.schemas)]) {
    expect([place, ajv.validateSchema(schema), ajv.errorsText()]).toEqual([place, true, "No errors"]);
  }
});

test("the query's parameters have the bounds that requests are held to", async () => {
  await using h = await adminHarness();
  const { paths } = await openApiOf(h.url);
  const parameter = (path: string, name: string) =>
    paths[path]?.get?.parameters?.find((one) => one.in === "query" && one.name === name);
  const batch = parameter("/events", "batch_ms")?.schema ?? {};
  expect(batch).toMatchObject({ type: "integer", minimum: 20, maximum: 1000 });
  for (const outside of [Number(batch.minimum) - 1, Number(batch.maximum) + 1]) {
    const reply = await h.get(`/events?batch_ms=${outside}`);
    expect([reply.status, at(await reply.json(), "error", "param")]).toEqual([400, "batch_ms"]);
  }
  const limit = parameter("/rounds", "limit")?.schema ?? {};
  expect(limit).toMatchObject({ type: "integer", minimum: 0, default: 128 });
  for (const bad of ["-1", "1.5", "x", "", String(Number(limit.maximum) + 1)]) {
    const reply = await h.get(`/rounds?limit=${bad}`);
    expect([bad, reply.status, at(await reply.json(), "error", "param")]).toEqual([bad, 400, "limit"]);
  }
  expect(parameter("/metrics", "format")?.schema).toEqual({
    anyOf: ["json", "prometheus"].map((value) => ({ const: value, type: "string" })),
  });
  expect((await h.get("/metrics?format=xml")).status).toBe(400);
});

test("a list of numbers is one of numbers", async () => {
  const { paths } = await document();
  const schema = paths["/admin/load"]?.post?.requestBody?.content["application/json"]?.schema;
  expect(at(schema, "properties", "kv_bits", "anyOf")).toEqual(
    [0, 4, 8].map((bits) => ({ const: bits, type: "number" })),
  );
});

test("one name is one schema", () => {
  const route = (path: string, schema: object) => ({
    ...{ method: "GET", path },
    hooks: { detail: { responses: { 200: { content: { "application/json": { schema } } } } } },
  });
  const one = t.Object({ a: t.String() }, { $id: "Same" });
  expect(openApiDocument([route("/a", one), route("/b", one)], "1")).toMatchObject({
    components: { schemas: { Same: {} } },
  });
  const other = t.Object({ b: t.String() }, { $id: "Same" });
  expect(() => openApiDocument([route("/a", one), route("/b", other)], "1")).toThrow("two schemas have the name Same");
});
