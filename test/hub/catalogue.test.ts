/** What is on this machine: every place where names are looked for, halves left out, rows of the registry. */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { catalogue, installedModels } from "../../src/hub/catalogue.ts";
import { REGISTRY } from "../../src/hub/registry.ts";

let home: string;
let env: Record<string, string>;
const NOTHING = () => null;

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "catalogue-"));
  env = { HOME: home, MLX_DSPARK_CACHE: join(home, "own"), MLX_DSPARK_MODEL_DIRS: join(home, "dirs") };
});
afterEach(() => rmSync(home, { recursive: true }));

function plant(bytes: number, ...parts: string[]): string {
  const dir = join(home, ...parts);
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, "config.json"), "{}");
  writeFileSync(join(dir, "model.safetensors"), Buffer.alloc(bytes, 1));
  return dir;
}

/** A snapshot in the layout of the Hugging Face cache. */
function plantRepo(bytes: number, repo: string): string {
  const root = [".cache", "huggingface", "hub", `models--${repo.replace("/", "--")}`];
  const commit = "0123456789abcdef0123456789abcdef01234567";
  mkdirSync(join(home, ...root, "refs"), { recursive: true });
  writeFileSync(join(home, ...root, "refs", "main"), commit);
  return plant(bytes, ...root, "snapshots", commit);
}

describe("installed models", () => {
  test("models of every place, large ones first, then drafters", async () => {
    plant(100, "own", "models", "flat_name");
    plant(300, "own", "models", "org", "nested");
    plant(200, ".lmstudio", "models", "maker", "studio-model");
    plant(400, "dirs", "mine");
    plantRepo(500, "mlx-community/Qwen3-4B-8bit");
    plantRepo(50, "z-lab/Qwen3-4B-DFlash-b16");
    const found = await installedModels(env);
    expect(found.map(({ repo, kind, bytes, source }) => [repo, kind, bytes, source])).toEqual([
      ["mlx-community/Qwen3-4B-8bit", "target", 500, "cache"],
      ["mine", "target", 400, "model_dirs"],
      ["org/nested", "target", 300, "cache"],
      ["maker/studio-model", "target", 200, "lmstudio"],
      ["flat_name", "target", 100, "cache"],
      ["z-lab/Qwen3-4B-DFlash-b16", "drafter", 50, "cache"],
    ]);
    expect(found[0]?.registryId).toBe("qwen3-4b");
    expect(found.at(-1)?.registryId).toBeNull();
  });

  test("GGUF files count; half a model, an unpacking that was killed and other folders do not", async () => {
    mkdirSync(join(home, "dirs", "ggufs"), { recursive: true });
    writeFileSync(join(home, "dirs", "ggufs", "a.gguf"), Buffer.alloc(70, 1));
    rmSync(join(plant(100, "dirs", "half"), "model.safetensors"));
    plant(100, "own", "models", "embedded-x.partial-host-1");
    mkdirSync(join(home, "dirs", "empty"));
    expect((await installedModels(env)).map(({ repo, bytes }) => [repo, bytes])).toEqual([["ggufs", 70]]);
  });

  test("a machine without any of the places has none", async () => {
    expect(await installedModels(env)).toEqual([]);
  });
});

describe("the registry", () => {
  test("rows in order; target, drafter and both on disk", async () => {
    plantRepo(500, "mlx-community/Qwen3-4B-8bit");
    plantRepo(600, "mlx-community/Qwen3-8B-8bit");
    plantRepo(60, "deepseek-ai/dspark_qwen3_8b_block7");
    const rows = await catalogue(env, NOTHING);
    expect(rows.map(({ row }) => row.id)).toEqual(REGISTRY.map(({ id }) => id));
    const byId = new Map(rows.map(({ row, ...here }) => [row.id, here]));
    expect(byId.get("qwen3-4b")).toEqual({ targetBytes: 500, drafterBytes: null, ready: false });
    expect(byId.get("qwen3-8b")).toEqual({ targetBytes: 600, drafterBytes: 60, ready: true });
    expect(byId.get("qwen3-14b")).toEqual({ targetBytes: null, drafterBytes: null, ready: false });
  });

  test("what the program ships with is ready; a build without it looks on the disk", async () => {
    const [shipped] = await catalogue(env, (id) => (id === "smollm2-135m" ? { target: 98, drafter: 30 } : null));
    expect(shipped).toMatchObject({ row: { id: "smollm2-135m" }, targetBytes: 98, drafterBytes: 30, ready: true });
    const [absent] = await catalogue(env, NOTHING);
    expect(absent).toMatchObject({ targetBytes: null, ready: false });
  });
});
