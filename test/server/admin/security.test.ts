/** Who may administer: no page of a foreign origin, whatever it sends; nobody without the key; other machines by choice only. */
import { describe, expect, test } from "bun:test";
import { isLoopbackHost, ListenError } from "../../../src/server/listen.ts";
import { at } from "../harness.ts";
import { adminHarness } from "./admin-harness.ts";

const FOREIGN = ["https://evil.example", "http://localhost.evil.example", "null", "http://127.0.0.1.evil.example:80"];

describe("foreign origins", () => {
  test.each(FOREIGN)("%s: 403 on every admin route, and nothing is done", async (origin) => {
    await using h = await adminHarness();
    const headers = { origin };
    for (const path of ["/admin/load", "/admin/load/cancel", "/admin/unload", "/admin/load/", "//admin/unload"]) {
      const reply = await h.post(path, { model: "other" }, { headers });
      expect([403, 404]).toContain(reply.status);
      if (!path.startsWith("//")) expect(at(await reply.json(), "error", "type")).toBe("permission_error");
    }
    for (const path of ["/admin/status", "/admin/models", "/admin/integrations"]) {
      expect((await h.get(path, { headers })).status).toBe(403);
    }
    const simple = { headers: { origin, "content-type": "text/plain" } };
    expect((await h.post("/admin/unload", {}, simple)).status).toBe(403);
    expect((await h.get("/admin/load", { method: "OPTIONS", headers })).status).toBe(403);
    expect(h.engine.loads).toHaveLength(1);
    expect(h.engine.unloads).toBe(0);
  });

  test("a star lets pages read answers, not administer", async () => {
    await using h = await adminHarness(undefined, { corsOrigins: ["*"] });
    const headers = { origin: "https://evil.example" };
    expect((await h.get("/health", { headers })).headers.get("access-control-allow-origin")).toBe("*");
    expect((await h.post("/admin/unload", {}, { headers })).status).toBe(403);
    expect(h.engine.unloads).toBe(0);
  });

  test("the server's own page, loopback and named origins may", async () => {
    await using h = await adminHarness(undefined, { corsOrigins: ["https://app.example"] });
    for (const origin of [h.url, "http://localhost:5173", "https://app.example"]) {
      expect((await h.get("/admin/status", { headers: { origin } })).status).toBe(200);
    }
  });
});

describe("keys", () => {
  test("every route but health asks for it, with or without a model", async () => {
    await using h = await adminHarness(undefined, { apiKey: "sesame" }, { loaded: false });
    const closed = ["/metrics", "/machine", "/doctor", "/rounds", "/events", "/calibration", "/admin/status"];
    for (const path of [...closed, "/admin/models", "/admin/integrations", "/v1/models"]) {
      expect({ path, status: (await h.get(path)).status }).toEqual({ path, status: 401 });
    }
    for (const path of ["/admin/load", "/admin/load/cancel", "/admin/unload"]) {
      expect((await h.post(path, { model: "m" })).status).toBe(401);
    }
    expect(h.engine.loads).toHaveLength(0);
    expect((await h.get("/health")).status).toBe(200);
    const headers = { authorization: "Bearer sesame" };
    for (const path of ["/metrics", "/machine", "/doctor", "/admin/status", "/admin/models"]) {
      expect({ path, status: (await h.get(path, { headers })).status }).toEqual({ path, status: 200 });
    }
  });
});

describe("other machines", () => {
  test("need a key, or a word that nobody needs one", async () => {
    await expect(adminHarness(undefined, {}, { loaded: false, host: "0.0.0.0" })).rejects.toThrow(ListenError);
    await expect(adminHarness(undefined, {}, { loaded: false, host: "0.0.0.0" })).rejects.toThrow("--insecure");
    await using keyed = await adminHarness(undefined, { apiKey: "k" }, { loaded: false, host: "0.0.0.0" });
    expect((await keyed.get("/health")).status).toBe(200);
    await using open = await adminHarness(undefined, {}, { loaded: false, host: "0.0.0.0", insecure: true });
    expect((await open.get("/admin/status")).status).toBe(200);
  });

  test.each([
    ["127.0.0.1", true],
    ["127.9.9.9", true],
    ["localhost", true],
    ["::1", true],
    ["[::1]", true],
    ["0.0.0.0", false],
    ["::", false],
    ["192.168.1.5", false],
    ["localhost.example", false],
    ["127.0.0.1.example", false],
  ])("%s is loopback: %p", (host, loopback) => {
    expect(isLoopbackHost(host)).toBe(loopback);
  });
});

test("every path answers other methods with 405 and its own, HEAD and OPTIONS without a word", async () => {
  await using h = await adminHarness();
  const gets = ["/admin/status", "/admin/models", "/admin/integrations", "/metrics", "/machine", "/doctor"];
  for (const path of [...gets, "/rounds", "/events", "/calibration", "/health"]) {
    const reply = await h.post(path, {});
    expect({ path, status: reply.status, allow: reply.headers.get("allow") }).toEqual({
      ...{ path, status: 405, allow: "GET, HEAD, OPTIONS" },
    });
    expect(at(await reply.json(), "error", "type")).toBe("invalid_request_error");
  }
  for (const path of ["/admin/load", "/admin/load/cancel", "/admin/unload"]) {
    for (const method of ["GET", "PUT", "DELETE", "PATCH"]) {
      expect((await h.get(path, { method })).status).toBe(405);
    }
    expect((await h.get(path, { method: "HEAD" })).status).toBe(200);
    expect((await h.get(path, { method: "OPTIONS" })).status).toBe(204);
  }
  expect((await h.get("/admin/nowhere")).status).toBe(404);
  expect(h.engine.loads).toHaveLength(1);
});
