/** Every fault that the local hub can produce: what is retried, resumed or refused, with the requests it costs. */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { HubError } from "../../src/hub/errors.ts";
import { sha256 } from "./server.ts";
import { dirOf, modelFiles, noise, PART_BYTES, SHARD_A, World } from "./world.ts";

const REPO = "org/one";
const WEIGHTS = "model.safetensors";
/** Three parts, the last one short. */
const BYTES = noise(2 * PART_BYTES + 500, 3);
const LAST = BYTES.length - 1;

let world: World;

beforeEach(async () => {
  world = await World.make();
  world.hub.put(REPO, { "config.json": "{}", [WEIGHTS]: BYTES });
});
afterEach(() => world.close());

/** One connection, so that the order of requests is known. */
function resolveAlone(name = REPO) {
  return world.resolve(name, { tuning: { connections: 1 } });
}

function weightsOf(dir: string): Uint8Array {
  return readFileSync(join(dir, WEIGHTS));
}

/** Ranges asked of the download host, in order. */
function ranges(): string[] {
  return world.hub.lines().flatMap((line) => (line.startsWith("GET cdn") ? (line.split(" ")[3] ?? "whole") : []));
}

function heads(): number {
  return world.hub.log.filter(({ method }) => method === "HEAD").length;
}

async function failure(work: Promise<unknown>): Promise<HubError> {
  try {
    await work;
  } catch (error) {
    if (error instanceof HubError) return error;
    throw error;
  }
  throw new Error("a HubError was expected");
}

describe("without faults", () => {
  test("one request for the commit, one for the list, one per small file, and per part of an LFS file", async () => {
    const dir = dirOf(await resolveAlone());
    expect(world.hub.lines()).toEqual([
      "GET hub /api/models/org/one/revision/main",
      "GET hub /api/models/org/one/tree/COMMIT",
      "GET hub /org/one/resolve/COMMIT/config.json",
      "HEAD hub /org/one/resolve/COMMIT/model.safetensors",
      "GET cdn /cdn/org/one/COMMIT/model.safetensors 0-16383",
      "GET cdn /cdn/org/one/COMMIT/model.safetensors 16384-32767",
      `GET cdn /cdn/org/one/COMMIT/model.safetensors 32768-${LAST}`,
    ]);
    expect(sha256(weightsOf(dir))).toBe(sha256(BYTES));
  });
});

describe("what passes", () => {
  test("cut: goes on in the middle of the part", async () => {
    world.hub.fault({ match: "^/cdn/", kind: "cut", after: 10_000, skip: 1 });
    const dir = dirOf(await resolveAlone());
    const [first, second, third, ...rest] = ranges();
    expect(first).toBe("0-16383");
    expect(second).toBe("16384-32767");
    const from = Number(third?.split("-")[0]); // A reset may swallow bytes that were sent just before it.
    expect(from).toBeGreaterThanOrEqual(16384);
    expect(from).toBeLessThanOrEqual(16384 + 10_000);
    expect(third).toBe(`${from}-32767`);
    expect(rest).toEqual([`32768-${LAST}`]);
    expect(heads()).toBe(1);
    expect(sha256(weightsOf(dir))).toBe(sha256(BYTES));
  });

  test("short: a reply that ends early is continued", async () => {
    world.hub.fault({ match: "^/cdn/", kind: "short", bytes: 1000 });
    expect(sha256(weightsOf(dirOf(await resolveAlone())))).toBe(sha256(BYTES));
    expect(ranges()).toHaveLength(4);
  });

  test("stall: silence ends the request and the rest is asked for", async () => {
    world.hub.fault({ match: "^/cdn/", kind: "stall", after: 4096, ms: 2_000 });
    const dir = dirOf(await resolveAlone());
    expect(ranges()).toEqual(["0-16383", "4096-16383", "16384-32767", `32768-${LAST}`]);
    expect(sha256(weightsOf(dir))).toBe(sha256(BYTES));
  });

  test("stall before the head of a reply is a retry too", async () => {
    world.hub.fault({ match: "/tree/", kind: "stall", after: 0, ms: 2_000 });
    await resolveAlone();
    expect(world.hub.lines().filter((line) => line.includes("/tree/"))).toHaveLength(2);
  });

  test("slow: no silence, no retry", async () => {
    world.hub.fault({ match: "^/cdn/", kind: "slow", bytes_per_s: 50_000 });
    await resolveAlone();
    expect(ranges()).toHaveLength(3);
  });

  for (const code of [500, 502, 503, 408]) {
    test(`status ${code}: retried, for the list and for a part`, async () => {
      world.hub.fault({ match: "/tree/", kind: "status", code, times: 2 });
      world.hub.fault({ match: "^/cdn/", kind: "status", code, times: 3 });
      await resolveAlone();
      expect(world.hub.lines().filter((line) => line.includes("/tree/"))).toHaveLength(3);
      expect(ranges()).toHaveLength(6);
    });
  }

  test("status 429: waits as long as the server says, at most the limit, and counts as a retry", async () => {
    world.hub.fault({ match: "/tree/", kind: "status", code: 429, retry_after: 1 });
    await resolveAlone();
    const [first, second] = world.hub.log.filter(({ path }) => path.includes("/tree/"));
    expect((second?.t ?? 0) - (first?.t ?? 0)).toBeGreaterThan(950);
  });

  test("five retries and no more", async () => {
    world.hub.fault({ match: "/tree/", kind: "status", code: 503, times: 99 });
    const error = await failure(resolveAlone());
    expect(error.kind).toBe("unreachable");
    expect(error.message).toContain("HTTP 503");
    expect(world.hub.lines().filter((line) => line.includes("/tree/"))).toHaveLength(6);
  });

  test("progress gives the patience back: a line that breaks in every part still ends", async () => {
    world.hub.fault({ match: "^/cdn/", kind: "short", bytes: 1500, times: 99 });
    const dir = dirOf(await resolveAlone());
    expect(sha256(weightsOf(dir))).toBe(sha256(BYTES));
    expect(ranges().length).toBeGreaterThan(20);
  });

  test("expire: a refused address is asked for anew, once for all connections", async () => {
    world.hub.fault({ match: "^/cdn/", kind: "expire", skip: 1 });
    const dir = dirOf(await resolveAlone());
    expect(heads()).toBe(2);
    expect(ranges()).toEqual(["0-16383", "16384-32767", "16384-32767", `32768-${LAST}`]);
    expect(sha256(weightsOf(dir))).toBe(sha256(BYTES));
  });

  test("expire with several connections", async () => {
    world.hub.put("org/big", { "config.json": "{}", [WEIGHTS]: noise(20 * PART_BYTES, 4) });
    world.hub.fault({ match: "^/cdn/", kind: "expire", skip: 5 });
    const dir = dirOf(await world.resolve("org/big"));
    expect(sha256(weightsOf(dir))).toBe(sha256(noise(20 * PART_BYTES, 4)));
    expect(heads()).toBeLessThanOrEqual(4);
  });

  test("norange: falls back to one stream, and uses it after a cut as well", async () => {
    world.hub.fault({ match: "^/cdn/", kind: "norange", times: 1 });
    world.hub.fault({ match: "^/cdn/", kind: "cut", after: 20_000, skip: 0, times: 1 });
    const dir = dirOf(await resolveAlone());
    expect(ranges()).toEqual(["0-16383", "whole", "whole"]);
    expect(sha256(weightsOf(dir))).toBe(sha256(BYTES));
  });

  test("corrupt: the wrong bytes are thrown away and fetched once more", async () => {
    world.hub.fault({ match: "^/cdn/", kind: "corrupt", offset: 5, skip: 1 });
    const dir = dirOf(await resolveAlone());
    expect(ranges()).toHaveLength(6);
    expect(sha256(weightsOf(dir))).toBe(sha256(BYTES));
    expect(world.notices.join()).toContain("does not match");
  });

  test("corrupt small file: git's own hash finds it", async () => {
    world.hub.fault({ match: "config.json", kind: "corrupt", offset: 1 });
    const dir = dirOf(await resolveAlone());
    expect(readFileSync(join(dir, "config.json"), "utf8")).toBe("{}");
    expect(world.hub.lines().filter((line) => line.endsWith("config.json"))).toHaveLength(2);
  });

  test("swap: a new commit in the middle changes nothing, files are asked by commit", async () => {
    const before = world.hub.put(REPO, { "config.json": "{}", [WEIGHTS]: BYTES });
    world.hub.fault({ match: "/tree/", kind: "swap" });
    const found = await resolveAlone();
    expect(found.commit).toBe(before);
    expect(sha256(weightsOf(dirOf(found)))).toBe(sha256(BYTES));
  });

  for (const form of ["weak", "none", "lowercase"] as const) {
    test(`etag ${form}: the list's hashes decide`, async () => {
      world.hub.fault({ match: "/resolve/", kind: "etag", form, times: 99 });
      world.hub.fault({ match: "^/cdn/", kind: "etag", form, times: 99 });
      expect(sha256(weightsOf(dirOf(await resolveAlone())))).toBe(sha256(BYTES));
    });
  }

  test("bigtree: all pages are read", async () => {
    const many = Object.fromEntries(Array.from({ length: 2500 }, (_, i) => [`extra/${i}.txt`, `${i}`]));
    world.hub.put("org/forest", { ...many, "config.json": "{}", [WEIGHTS]: BYTES });
    const dir = dirOf(await resolveAlone("org/forest"));
    expect(world.hub.lines().filter((line) => line.includes("/tree/"))).toHaveLength(3);
    expect(readdirSync(dir).sort()).toEqual(["config.json", WEIGHTS]);
  });
});

describe("what is refused", () => {
  test("corrupt twice: an error with both hashes, and no blob", async () => {
    world.hub.fault({ match: "^/cdn/", kind: "corrupt", offset: 5, times: 99 });
    const error = await failure(resolveAlone());
    expect(error.kind).toBe("corrupt");
    expect(error.message).toContain(`expected ${sha256(BYTES)}, got `);
    expect(ranges()).toHaveLength(6);
    expect(readdirSync(join(world.repoDir(REPO), "blobs")).filter((name) => name.startsWith(sha256(BYTES)))).toEqual(
      [],
    );
    expect(existsSync(join(world.repoDir(REPO), "refs", "main"))).toBe(false);
  });

  test("another total in Content-Range: the file changed", async () => {
    world.hub.fault({ match: "^/cdn/", kind: "wrongtotal", skip: 1 });
    const error = await failure(resolveAlone());
    expect(error.message).toContain("changed on the server");
    expect(ranges()).toHaveLength(2);
  });

  test("the address keeps being refused", async () => {
    world.hub.fault({ match: "^/cdn/", kind: "status", code: 403, times: 99 });
    const error = await failure(resolveAlone());
    expect(error.kind).toBe("denied");
    expect(ranges()).toHaveLength(6);
    expect(heads()).toBe(6);
  });

  test("redirectloop: five hops at most", async () => {
    world.hub.fault({ match: "/revision/", kind: "redirectloop", times: 99 });
    const error = await failure(resolveAlone());
    expect(error.message).toContain("circles");
    expect(world.hub.log).toHaveLength(6);
  });

  for (const path of [
    "../x.safetensors",
    "/abs.safetensors",
    "a\\b.safetensors",
    "CON",
    "con.json",
    "nul\0.json",
    "a//b",
    "a/./b",
  ]) {
    test(`evilpath ${JSON.stringify(path)}: nothing is written`, async () => {
      world.hub.put("org/evil", { "config.json": "{}", [WEIGHTS]: BYTES, [path]: "x" });
      const error = await failure(resolveAlone("org/evil"));
      expect(error.message).toContain("unsafe path");
      expect(world.hub.log).toHaveLength(2);
      expect(readdirSync(world.home)).toEqual([]);
    });
  }

  test("an index that names a file elsewhere is refused before any weights", async () => {
    const index = JSON.stringify({ weight_map: { a: "../evil.safetensors" } });
    world.hub.put("org/evil", { "config.json": "{}", "model.safetensors.index.json": index, [WEIGHTS]: BYTES });
    const error = await failure(resolveAlone("org/evil"));
    expect(error.message).toContain("../evil.safetensors");
    expect(ranges()).toEqual([]);
  });

  test("an index that names a missing shard is refused before any weights", async () => {
    const { [SHARD_A]: _, ...rest } = modelFiles();
    world.hub.put("org/half", rest);
    const error = await failure(resolveAlone("org/half"));
    expect(error.message).toContain(SHARD_A);
    expect(ranges()).toEqual([]);
  });

  test("only pickles, only GGUF, no weights, no config", async () => {
    world.hub.put("org/pickle", { "config.json": "{}", "pytorch_model.bin": "x" });
    world.hub.put("org/gguf", { "config.json": "{}", "m-Q8_0.gguf": "xx", "m-Q4_K_M.gguf": "x", "mmproj-m.gguf": "x" });
    world.hub.put("org/data", { "config.json": "{}" });
    world.hub.put("org/noconfig", { [WEIGHTS]: BYTES });
    expect((await failure(resolveAlone("org/pickle"))).message).toContain("pickle");
    const gguf = (await failure(resolveAlone("org/gguf"))).message;
    expect(gguf).toContain("gguf:org/gguf/m-Q4_K_M.gguf");
    expect(gguf).toContain("m-Q8_0.gguf (0.00 GB)");
    expect(gguf).not.toContain("mmproj");
    expect((await failure(resolveAlone("org/data"))).message).toContain("no safetensors or GGUF");
    expect((await failure(resolveAlone("org/noconfig"))).message).toContain("no config.json");
    expect(readdirSync(world.home)).toEqual([]);
  });
});
