/** The hub's refusals as errors that say what to do, and the token's way: to the hub only, and into no text. */
import { afterEach, beforeEach, describe, expect, spyOn, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { HubHttp } from "../../src/hub/http.ts";
import { resolveModel } from "../../src/hub/resolve.ts";
import { GOOD_TOKEN } from "./server.ts";
import { World } from "./world.ts";

let world: World;

beforeEach(async () => {
  world = await World.make();
});
afterEach(() => world.close());

function host(): string {
  return new URL(world.hub.url).host;
}

describe("statuses", () => {
  test("no such repository, or a private one, without and with a token", async () => {
    const message = `no repository "org/none" on ${host()}, or it is private: check the name, or set HF_TOKEN`;
    await expect(world.resolve("org/none")).rejects.toMatchObject({ kind: "not_found", message });
    world.env.HF_TOKEN = GOOD_TOKEN;
    await expect(world.resolve("org/none")).rejects.toMatchObject({ kind: "not_found", message });
    expect(world.hub.log).toHaveLength(2);
  });

  test("a private repository opens with the token", async () => {
    world.hub.setState("org/m", "private");
    await expect(world.resolve("org/m")).rejects.toMatchObject({ kind: "not_found" });
    world.env.HF_TOKEN = GOOD_TOKEN;
    expect((await world.resolve("org/m")).source).toBe("download");
  });

  test("gated: where to accept, and whose token lacks access", async () => {
    world.hub.setState("org/m", "gated");
    const terms = `"org/m" is gated: accept its terms at ${world.hub.url}/org/m with the account of your token`;
    await expect(world.resolve("org/m")).rejects.toThrow(`${terms} (no token is set)`);
    world.hub.setState("org/m", "open");
    world.hub.fault({ match: "/tree/", kind: "status", code: 403, error_code: "GatedRepo" });
    world.env.HF_TOKEN = GOOD_TOKEN;
    await expect(world.resolve("org/m")).rejects.toThrow(`${terms} (the token of HF_TOKEN has no access)`);
  });

  test("a token that the hub does not know", async () => {
    world.env.HF_TOKEN = "hf_wrong";
    await expect(world.resolve("org/m")).rejects.toThrow(`${host()} does not accept the token of HF_TOKEN`);
    expect(world.hub.log).toHaveLength(1);
  });

  test("disabled, unknown revision, unknown file", async () => {
    await expect(world.resolve("org/m@nowhere")).rejects.toThrow('"org/m" has no revision "nowhere"');
    world.hub.fault({ match: "/resolve/.*config.json", kind: "status", code: 404, error_code: "EntryNotFound" });
    await expect(world.resolve("org/m")).rejects.toThrow('"org/m" has no file ');
    world.hub.setState("org/m", "disabled");
    await expect(world.resolve("org/m")).rejects.toThrow('"org/m" was disabled by');
  });

  test("something that is no JSON, or of another shape", async () => {
    world.hub.fault({ match: "/revision/", kind: "corrupt", offset: 0 });
    await expect(world.resolve("org/m")).rejects.toThrow("no JSON");
    world.hub.fault({ match: "/revision/", kind: "status", code: 200 });
    await expect(world.resolve("org/m")).rejects.toMatchObject({ kind: "server" });
  });
});

describe("the line", () => {
  test("a refused connection and an unknown host fail at once, naming host and settings", async () => {
    world.hub.stop();
    const start = performance.now();
    const message = /cannot reach 127.0.0.1:\d+ \(ECONNREFUSED\).*HF_ENDPOINT.*--offline/;
    await expect(world.resolve("org/m")).rejects.toMatchObject({
      kind: "unreachable",
      message: expect.stringMatching(message),
    });
    expect(performance.now() - start).toBeLessThan(1000);
  });

  test("a host that never answers: retried, then the same advice", async () => {
    let connections = 0;
    const open = () => {
      connections++;
    };
    const silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { open, data: () => undefined } });
    world.env.HF_ENDPOINT = `http://127.0.0.1:${silent.port}`;
    const http = { connectMs: 30, idleMs: 30 };
    const advice = /cannot reach .* \(no answer\).*--offline/;
    await expect(world.resolve("org/m", { tuning: { http } })).rejects.toThrow(advice);
    silent.stop(true);
    expect(connections).toBe(6);
  });

  test("a host that does not speak TLS", async () => {
    world.env.HF_ENDPOINT = world.hub.url.replace("http:", "https:");
    await expect(world.resolve("org/m")).rejects.toThrow(/cannot reach 127.0.0.1/);
    expect(world.hub.log).toEqual([]);
  });

  test("HF_ENDPOINT that is no address", async () => {
    world.env.HF_ENDPOINT = "huggingface";
    await expect(world.resolve("org/m")).rejects.toThrow('HF_ENDPOINT is no http(s) address: "huggingface"');
  });

  test("redirect_http: from https down to http is refused", async () => {
    const redirect = async () => new Response(null, { status: 302, headers: { location: "http://127.0.0.1:9/x" } });
    const fetchSpy = spyOn(globalThis, "fetch").mockImplementation(
      Object.assign(redirect, { preconnect: fetch.preconnect }),
    );
    try {
      const http = new HubHttp({ endpoint: "https://hub.test", token: "t", offline: false, userAgent: "test" });
      const run = http.request({ method: "GET", url: "https://hub.test/a" });
      await expect(run).rejects.toThrow("leads to http://127.0.0.1:9: refused");
      expect(fetchSpy).toHaveBeenCalledTimes(1);
    } finally {
      fetchSpy.mockRestore();
    }
  });
});

describe("token", () => {
  test("goes to the hub with every request and never to the download host", async () => {
    world.env.HF_TOKEN = ` ${GOOD_TOKEN}\n`;
    await world.resolve("org/m");
    const auths = (which: string) =>
      new Set(world.hub.log.filter(({ host }) => host === which).map(({ auth }) => auth));
    expect(auths("hub")).toEqual(new Set([`Bearer ${GOOD_TOKEN}`]));
    expect(auths("cdn")).toEqual(new Set([null]));
  });

  test("is dropped when a redirect leaves the hub", async () => {
    const other = await World.make();
    try {
      const seen: (string | null)[] = [];
      const redirect = async (input: string | URL | Request, init?: RequestInit) => {
        seen.push(new Headers(init?.headers).get("authorization"));
        if (!String(input).startsWith("https://hub.test/")) return new Response("x");
        return new Response(null, { status: 302, headers: { location: "https://elsewhere.test/x" } });
      };
      const fetchSpy = spyOn(globalThis, "fetch").mockImplementation(
        Object.assign(redirect, { preconnect: fetch.preconnect }),
      );
      const http = new HubHttp({ endpoint: "https://hub.test", token: "t", offline: false, userAgent: "test" });
      await http.request({ method: "GET", url: "https://hub.test/a" });
      fetchSpy.mockRestore();
      expect(seen).toEqual(["Bearer t", null]);
    } finally {
      other.close();
    }
  });

  test("from the file that Python writes, unless a variable names another", async () => {
    world.hub.setState("org/m", "private");
    const path = join(world.home, ".cache", "huggingface", "token");
    mkdirSync(join(world.home, ".cache", "huggingface"), { recursive: true });
    writeFileSync(path, `${GOOD_TOKEN}\n`);
    expect((await world.resolve("org/m")).source).toBe("download");
    const elsewhere = join(world.home, "token-elsewhere");
    writeFileSync(elsewhere, "hf_wrong");
    world.env.HF_TOKEN_PATH = elsewhere;
    await expect(world.resolve("org/m", { refresh: true })).rejects.toThrow(`the token of ${elsewhere}`);
  });

  test("is in no message, notice or file, whatever goes wrong", async () => {
    const texts: string[] = [];
    const noisy = async (run: () => Promise<unknown>) => {
      try {
        texts.push(JSON.stringify(await run()));
      } catch (error) {
        texts.push(Bun.inspect(error), String(error), JSON.stringify(error));
      }
    };
    world.env.HF_TOKEN = GOOD_TOKEN;
    world.hub.fault({ match: "/tree/", kind: "status", code: 401 });
    await noisy(() => world.resolve("org/m"));
    world.hub.fault({ match: "/tree/", kind: "status", code: 500, times: 99 });
    await noisy(() => world.resolve("org/m"));
    world.hub.reset();
    world.hub.fault({ match: "^/cdn/", kind: "corrupt", offset: 1, times: 99 });
    await noisy(() => world.resolve("org/m"));
    world.hub.reset();
    await noisy(() => world.resolve("org/m"));
    world.env.HF_TOKEN = `${GOOD_TOKEN} with\nblanks`;
    await noisy(() => world.resolve("org/m"));
    expect(texts.join()).toContain("the token in HF_TOKEN contains blanks");
    const files = readdirSync(world.home, { recursive: true, encoding: "utf8" }).map((name) => join(world.home, name));
    const contents = files.filter((path) => statSync(path).isFile()).map((path) => readFileSync(path, "latin1"));
    expect([...texts, ...world.notices, ...contents].join().includes(GOOD_TOKEN)).toBe(false);
    // Signed addresses of the download host are secrets of a kind, too.
    expect([...texts, ...world.notices, ...contents].join()).not.toContain("sig=");
  });
});

test("offline: not one request, for nothing", async () => {
  const fetchSpy = spyOn(globalThis, "fetch");
  try {
    for (const name of ["org/m", "gguf:org/m/x.gguf", "qwen3-8b", "no-such-name", "org/m@v1"]) {
      await expect(world.resolve(name, { offline: true, refresh: true })).rejects.toMatchObject({ name: "HubError" });
    }
    world.env.HF_HUB_OFFLINE = "yes";
    await expect(resolveModel("org/m", { offline: false, env: world.env })).rejects.toMatchObject({ kind: "offline" });
    const http = new HubHttp({ endpoint: world.hub.url, token: null, offline: true, userAgent: "test" });
    await expect(http.request({ method: "GET", url: world.hub.url })).rejects.toMatchObject({ kind: "offline" });
    expect(fetchSpy).not.toHaveBeenCalled();
    expect(world.hub.log).toEqual([]);
  } finally {
    fetchSpy.mockRestore();
  }
});
