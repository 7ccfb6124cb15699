import { afterAll, describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import {
  type CalibrationParts,
  calibrationKey,
  KERNEL_TAGS,
  keysToRead,
  weightFingerprint,
} from "../../src/decoding/calibration-key.ts";
import { type CalibrationEntry, CalibrationStore, costsOf } from "../../src/decoding/calibration-store.ts";

const root = mkdtempSync(join(tmpdir(), "calibration-"));
afterAll(() => rmSync(root, { recursive: true }));
let folders = 0;
const newFolder = () => join(root, String(folders++));

const ENTRY: CalibrationEntry = {
  verify: { "1": 36.7, "2": 37 },
  drafter: { "1": 10.4 },
  overhead: 0.3,
  plain: 36,
  verify_depth: { d0: 512, depths: [4096, 16384], slope: { "1": 0.0004 } },
  measured_at: "2026-03-01T00:00:00.000Z",
  iters: 8,
  spread: { "verify 1": 0.01 },
};

describe("store", () => {
  test("round trip, in a folder that did not exist, with nothing left beside it", () => {
    const folder = newFolder();
    const store = new CalibrationStore(folder);
    expect(store.load("a")).toBeNull();
    expect(store.save("a", ENTRY)).toBe(true);
    expect(store.save("b", { ...ENTRY, drafter: 4 })).toBe(true);
    expect(new CalibrationStore(folder).load("a")).toEqual(ENTRY);
    expect(store.load("b")?.drafter).toBe(4);
    expect(readdirSync(folder)).toEqual(["calibration.json"]);
    expect(readFileSync(join(folder, "calibration.json"), "utf8")).toStartWith('{\n "a"');
  });

  test("keys of others stay, whatever they hold", () => {
    const folder = newFolder();
    const store = new CalibrationStore(folder);
    store.save("a", ENTRY);
    const file = join(folder, "calibration.json");
    const all = JSON.parse(readFileSync(file, "utf8")) as Record<string, unknown>;
    writeFileSync(file, JSON.stringify({ ...all, "v5|Apple M4": { verify: null }, note: "by hand" }));
    store.save("b", ENTRY);
    const kept = JSON.parse(readFileSync(file, "utf8")) as Record<string, unknown>;
    expect(Object.keys(kept).sort()).toEqual(["a", "b", "note", "v5|Apple M4"]);
    expect(store.load("v5|Apple M4")).toBeNull();
    expect(store.load("note")).toBeNull();
  });

  test.each([
    ["cut off", '{"a": {"verify": {"1": 3'],
    ["empty", ""],
    ["not an object", "[1, 2]"],
    ["binary", "\u0000\u0001"],
  ])("a file that is %s counts as empty and is replaced", (_, text) => {
    const folder = newFolder();
    const store = new CalibrationStore(folder);
    store.save("x", ENTRY);
    writeFileSync(join(folder, "calibration.json"), text);
    expect(store.load("a")).toBeNull();
    expect(store.save("a", ENTRY)).toBe(true);
    expect(store.load("a")).toEqual(ENTRY);
  });

  test.each([
    ["no verify", { ...ENTRY, verify: undefined }],
    ["empty verify", { ...ENTRY, verify: {} }],
    ["text for ms", { ...ENTRY, verify: { 1: "fast" } }],
    ["a width that is no number", { ...ENTRY, verify: { wide: 3 } }],
    ["negative ms", { ...ENTRY, drafter: -1 }],
    ["no overhead", { ...ENTRY, overhead: null }],
    ["a depth without slope", { ...ENTRY, verify_depth: { d0: 512 } }],
  ])("an entry with %s is not used", (_, entry) => {
    const folder = newFolder();
    const store = new CalibrationStore(folder);
    store.save("good", ENTRY);
    writeFileSync(join(folder, "calibration.json"), JSON.stringify({ bad: entry, good: ENTRY }));
    expect(store.load("bad")).toBeNull();
    expect(store.load("good")).not.toBeNull();
  });

  test("a folder that cannot be written is reported once a save, and never thrown", () => {
    const file = newFolder();
    writeFileSync(file, "");
    const lines: string[] = [];
    const store = new CalibrationStore(join(file, "below"), (line) => lines.push(line));
    expect(store.save("a", ENTRY)).toBe(false);
    expect(lines).toHaveLength(1);
    expect(store.load("a")).toBeNull();
  });

  test("a lock that somebody left behind is broken", () => {
    const folder = newFolder();
    const store = new CalibrationStore(folder);
    store.save("a", ENTRY);
    const lock = join(folder, "calibration.json.lock");
    writeFileSync(lock, "");
    const old = new Date(Date.now() - 60_000);
    utimesSync(lock, old, old);
    expect(store.save("b", ENTRY)).toBe(true);
    expect(existsSync(lock)).toBe(false);
  });

  test("writers in several processes keep each other's entries", async () => {
    const folder = newFolder();
    const names = ["p", "q", "r"];
    const script = join(import.meta.dir, "calibration-writer.ts");
    const writers = names.map((name) => Bun.spawn([process.execPath, script, folder, name, "12"]));
    expect(await Promise.all(writers.map((writer) => writer.exited))).toEqual([0, 0, 0]);
    const all = JSON.parse(readFileSync(join(folder, "calibration.json"), "utf8")) as Record<string, unknown>;
    expect(Object.keys(all).sort()).toEqual(
      names.flatMap((name) => Array.from({ length: 12 }, (_, i) => `${name}-${i}`)).sort(),
    );
  });

  test("costs of an entry", () => {
    expect(costsOf(ENTRY)).toEqual({
      verify: ENTRY.verify,
      drafter: ENTRY.drafter,
      overhead: 0.3,
      plain: 36,
      depth0: 512,
      depthSlope: { "1": 0.0004 },
    });
    expect(costsOf({ ...ENTRY, verify_depth: { d0: 512, unsupported: true } }).depthSlope).toBeNull();
  });
});

const PARTS: CalibrationParts = {
  device: "Apple M4 Pro",
  cores: 20,
  osMajor: 15,
  power: "ac",
  mlxVersion: "0.32.2",
  kernels: "0123456789abcdef",
  mode: "dspark",
  target: "aaaaaaaaaaaaaaaa",
  drafter: "bbbbbbbbbbbbbbbb",
  drafterBits: 4,
  context: 512,
  kvBits: null,
  tags: [],
};

describe("key", () => {
  test("changes when any part changes", () => {
    const changes: Partial<CalibrationParts>[] = [
      {},
      { device: "Apple M4" },
      { cores: 16 },
      { osMajor: 26 },
      { power: "battery" },
      { mlxVersion: "0.32.4" },
      { kernels: "" },
      { mode: "dflash" },
      { target: "aaaaaaaaaaaaaaab" },
      { drafter: null },
      { drafter: "bbbbbbbbbbbbbbbc" },
      { drafterBits: null },
      { drafterBits: 8 },
      { context: 1024 },
      { kvBits: 8 },
      { tags: ["smm"] },
      { tags: ["mra"] },
      { tags: ["smm", "mra"] },
    ];
    const keys = changes.map((change) => calibrationKey({ ...PARTS, ...change }));
    expect(new Set(keys).size).toBe(changes.length);
    expect(keys[0]).toBe(
      "ts2|Apple M4 Pro|c20|os15|ac|mlx0.32.2|k0123456789abcdef|dspark|aaaaaaaaaaaaaaaa|bbbbbbbbbbbbbbbb|d4|ctx512",
    );
  });

  test("free text cannot imitate the border between parts", () => {
    const text = fc.string({ unit: fc.constantFrom("|", "%", "7", "C", "a", "2", "5"), maxLength: 6 });
    fc.assert(
      fc.property(text, text, text, text, (device, target, otherDevice, otherTarget) => {
        const same = device === otherDevice && target === otherTarget;
        const a = calibrationKey({ ...PARTS, device, target });
        const b = calibrationKey({ ...PARTS, device: otherDevice, target: otherTarget });
        expect(a === b).toBe(same);
      }),
    );
  });

  test("order of the tags does not matter", () => {
    expect(calibrationKey({ ...PARTS, tags: ["mra", "smm"] })).toBe(calibrationKey({ ...PARTS, tags: ["smm", "mra"] }));
  });

  test("a reader tries the live combination first, then the others in order", () => {
    const keys = keysToRead({ ...PARTS, tags: ["sdps"] });
    const tags = keys.map((key) =>
      key
        .split("|")
        .filter((part) => (KERNEL_TAGS as readonly string[]).includes(part))
        .join("+"),
    );
    expect(tags).toEqual(["sdps", "", "smm", "smm+sdps", "mra", "smm+mra", "sdps+mra", "smm+sdps+mra"]);
    const store = new CalibrationStore(newFolder());
    store.save(keys[3] as string, ENTRY);
    store.save(keys[5] as string, ENTRY);
    expect(store.find(keys)?.key).toBe(keys[3] as string);
    expect(store.find(["none"])).toBeNull();
  });

  test("fingerprint: order of tensors does not matter, names, shapes and dtypes do", () => {
    const a = { name: "a", shape: [2, 3], dtype: "BF16" };
    const b = { name: "b", shape: [4], dtype: "U32" };
    const base = weightFingerprint([a, b]);
    expect(base).toMatch(/^[0-9a-f]{16}$/);
    expect(weightFingerprint([b, a])).toBe(base);
    for (const other of [
      { ...a, name: "c" },
      { ...a, shape: [3, 2] },
      { ...a, dtype: "F16" },
    ]) {
      expect(weightFingerprint([other, b])).not.toBe(base);
    }
  });
});
