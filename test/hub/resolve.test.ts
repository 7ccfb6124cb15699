/** Where a name leads: each row of the order with two sources competing, copies that cannot be used, and offline. */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { dirOf, modelFiles, SHARD_B, World } from "./world.ts";

let world: World;

beforeEach(async () => {
  world = await World.make();
});
afterEach(() => world.close());

/** Puts a small complete model into a folder below the home. */
function plant(...parts: string[]): string {
  const dir = join(world.home, ...parts);
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, "config.json"), "{}");
  writeFileSync(join(dir, "model.safetensors"), Buffer.alloc(100));
  return dir;
}

function plantFile(text: string, ...parts: string[]): string {
  const path = join(world.home, ...parts);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
  return path;
}

describe("the order", () => {
  test("every source gives way to the one before it", async () => {
    world.env.MLX_DSPARK_MODEL_DIRS = [join(world.home, "one"), join(world.home, "two")].join(":");
    world.env.MLX_DSPARK_CACHE = join(world.home, "own");
    plantFile(JSON.stringify({ downloadsFolder: join(world.home, "studio") }), ".lmstudio", "settings.json");
    await world.downloaded();
    const sources: [string, string[]][] = [
      ["cache-root", ["own", "models", "org", "m"]],
      ["cache-root", ["own", "models", "org_m"]],
      ["peer-cache", [".cache", "mlx_dspark", "models", "org", "m"]],
      ["peer-cache", [".cache", "mlx_dspark", "models", "org_m"]],
      ["lmstudio", [".lmstudio", "models", "org", "m"]],
      ["lmstudio", [".cache", "lm-studio", "models", "org", "m"]],
      ["lmstudio", ["studio", "org", "m"]],
      ["model-dirs", ["one", "org", "m"]],
      ["model-dirs", ["one", "org_m"]],
      ["model-dirs", ["one", "m"]],
      ["model-dirs", ["two", "org", "m"]],
    ];
    for (const [, parts] of sources) plant(...parts);
    for (const [source, parts] of sources) {
      const found = await world.resolve("org/m");
      expect(found).toEqual({ dir: join(world.home, ...parts), source: source as never, repo: "org/m" });
      rmSync(join(world.home, ...parts), { recursive: true });
    }
    expect(world.hub.log).toEqual([]);
    expect((await world.resolve("org/m")).source).toBe("hf-cache");
    rmSync(world.repoDir(), { recursive: true });
    expect((await world.resolve("org/m")).source).toBe("download");
  });

  test("a path that exists wins over every name", async () => {
    const here = plant("work", "qwen3-8b");
    const script = `import { resolveModel } from ${JSON.stringify(join(import.meta.dir, "../../src/hub/resolve.ts"))};
      console.log(JSON.stringify(await resolveModel("qwen3-8b", { offline: true })));`;
    const child = Bun.spawnSync([process.execPath, "-e", script], { cwd: join(world.home, "work"), env: world.env });
    expect(JSON.parse(child.stdout.toString())).toEqual({ dir: here, source: "path" });
  });

  test("a bare name: registry before local folders; folders by their name only", async () => {
    world.env.MLX_DSPARK_CACHE = join(world.home, "own");
    plant("own", "models", "qwen3-4b");
    const mine = plant("own", "models", "mine");
    await expect(world.resolve("qwen3-4b", { offline: true })).rejects.toThrow("mlx-community/Qwen3-4B-8bit");
    expect(await world.resolve("mine")).toEqual({ dir: mine, source: "cache-root" });
    plant(".lmstudio", "models", "other");
    await expect(world.resolve("other")).rejects.toThrow('no model "other" here');
  });

  test("a registry id in any case leads to its repository", async () => {
    const dir = plant(".lmstudio", "models", "mlx-community", "Qwen3-8B-8bit");
    expect(await world.resolve("QWEN3-8B")).toEqual({ dir, source: "lmstudio", repo: "mlx-community/Qwen3-8B-8bit" });
  });
});

describe("the embedded model", () => {
  test("comes from the program, before any download", async () => {
    const found = await world.resolve("SmolLM2-135m", { embedded: async (id) => `/unpacked/${id}.gguf` });
    expect(found).toMatchObject({ file: "/unpacked/smollm2-135m.gguf", source: "embedded" });
    expect(world.hub.log).toEqual([]);
  });

  test("a build without it uses the repository", async () => {
    world.hub.put("HuggingFaceTB/SmolLM2-135M-Instruct", modelFiles());
    expect((await world.resolve("smollm2-135m", { embedded: () => null })).source).toBe("download");
  });
});

describe("paths", () => {
  test("folder, file, home, link", async () => {
    const dir = plant("m");
    const file = plantFile("GGUF", "f", "x.gguf");
    symlinkSync(dir, join(world.home, "link"));
    expect(await world.resolve(dir)).toEqual({ dir, source: "path" });
    expect(await world.resolve("~/m")).toEqual({ dir, source: "path" });
    expect(await world.resolve(join(world.home, "link"))).toEqual({ dir: join(world.home, "link"), source: "path" });
    expect(await world.resolve(file)).toEqual({ file, source: "path" });
    expect(await world.resolve(dirname(file))).toEqual({ file, source: "path" });
  });

  test("several GGUF files are listed, projectors do not count", async () => {
    const first = plantFile("GGUF", "g", "a-Q4_0.gguf");
    plantFile("GGUF", "g", "mmproj-a.gguf");
    expect(await world.resolve(dirname(first))).toEqual({ file: first, source: "path" });
    plantFile("GGUF", "g", "a-Q8_0.gguf");
    await expect(world.resolve(dirname(first))).rejects.toThrow(/several GGUF files[\s\S]*a-Q4_0[\s\S]*a-Q8_0/);
  });

  test("what is no model", async () => {
    await expect(world.resolve("./no/such/folder")).rejects.toMatchObject({ kind: "not_found" });
    await expect(world.resolve(plantFile("x", "note.txt"))).rejects.toThrow("no model at");
    mkdirSync(join(world.home, "empty"));
    await expect(world.resolve(join(world.home, "empty"))).rejects.toThrow("no model at");
    expect(world.hub.log).toEqual([]);
  });

  test("half a split GGUF file", async () => {
    const path = plantFile("GGUF", "s", "a-00001-of-00002.gguf");
    await expect(world.resolve(path)).rejects.toThrow("a-00002-of-00002.gguf is missing");
  });
});

describe("copies that cannot be used", () => {
  test("incomplete: reported, other folders are not tried, the hub is", async () => {
    const broken = join(world.home, ".lmstudio", "models", "org", "m");
    mkdirSync(broken, { recursive: true });
    writeFileSync(join(broken, "config.json"), "{}");
    plant("dirs", "org", "m");
    world.env.MLX_DSPARK_MODEL_DIRS = join(world.home, "dirs");
    expect((await world.resolve("org/m")).source).toBe("download");
    expect(world.notices).toEqual([`found at ${broken}, but it is incomplete (missing or empty: *.safetensors)`]);
    expect((await world.resolve("org/m", { offline: true })).source).toBe("hf-cache");
    rmSync(world.repoDir(), { recursive: true });
    await expect(world.resolve("org/m", { offline: true })).rejects.toThrow(`found at ${broken}`);
  });

  test("a shard that is missing, empty, or only a pointer of git", async () => {
    const dir = join(world.home, "local");
    for (const [name, data] of Object.entries(modelFiles())) plantBytes(data, "local", name);
    expect(await world.resolve(dir)).toEqual({ dir, source: "path" });
    for (const text of ["", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", null]) {
      if (text === null) rmSync(join(dir, SHARD_B));
      else writeFileSync(join(dir, SHARD_B), text);
      await expect(world.resolve(dir)).rejects.toThrow(`incomplete (missing or empty: ${SHARD_B})`);
    }
  });

  test("refused by the judge: its own error, no other source", async () => {
    plant(".lmstudio", "models", "org", "m");
    const judge = () => {
      throw new Error("unknown model_type");
    };
    await expect(world.resolve("org/m", { judge })).rejects.toThrow("unknown model_type");
    expect(world.hub.log).toEqual([]);
  });
});

function plantBytes(data: Uint8Array | string, ...parts: string[]): void {
  const path = join(world.home, ...parts);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, data);
}

describe("the Hugging Face cache", () => {
  test("complete: one question about the branch; none for a commit; none offline", async () => {
    const { commit } = await world.downloaded();
    expect((await world.resolve("org/m")).source).toBe("hf-cache");
    expect(world.hub.lines()).toEqual(["GET hub /api/models/org/m/revision/main"]);
    world.hub.reset();
    expect((await world.resolve(`org/m@${commit}`)).source).toBe("hf-cache");
    expect((await world.resolve("org/m", { offline: true })).commit).toBe(commit ?? "");
    expect((await world.resolve("org/m", { offline: true, revision: commit })).commit).toBe(commit ?? "");
    expect(world.hub.log).toEqual([]);
    expect(world.notices).toEqual([]);
  });

  test("a newer commit is only reported; refresh fetches it", async () => {
    const { commit: old } = await world.downloaded();
    const newer = world.hub.put("org/m", { ...modelFiles(), "config.json": '{"a":1}' });
    expect((await world.resolve("org/m")).commit).toBe(old ?? "");
    expect(world.notices).toEqual(['a newer version of org/m is on the hub: "mlx-dspark pull org/m" fetches it']);
    const pulled = await world.resolve("org/m", { refresh: true });
    expect(pulled).toMatchObject({ source: "download", commit: newer });
    expect(readFileSync(join(dirOf(pulled), "config.json"), "utf8")).toBe('{"a":1}');
  });

  test("a hub that does not answer: the copy is used, and its date said", async () => {
    await world.downloaded();
    world.hub.fault({ match: "/revision/", kind: "status", code: 503, times: 99 });
    expect((await world.resolve("org/m")).source).toBe("hf-cache");
    expect(world.hub.log).toHaveLength(1);
    expect(world.notices.join()).toMatch(/gave no answer: using the copy of org\/m of \d{4}-\d\d-\d\d/);
    await expect(world.resolve("org/m", { refresh: true })).rejects.toMatchObject({ kind: "unreachable" });
  });

  test("incomplete and offline: what is missing", async () => {
    const { commit = "" } = await world.downloaded();
    rmSync(join(world.repoDir(), "snapshots", commit, SHARD_B));
    await expect(world.resolve("org/m", { offline: true })).rejects.toThrow(
      `org/m is not complete on this machine (missing: ${SHARD_B}) and offline mode is set`,
    );
    rmSync(join(world.repoDir(), "trees"), { recursive: true });
    await expect(world.resolve("org/m", { offline: true })).rejects.toThrow(`missing: ${SHARD_B}`);
    await world.resolve("org/m");
    expect(world.hub.lines().filter((line) => line.includes("cdn"))).toEqual([]);
  });

  test("without a ref: the only complete snapshot; of two, none", async () => {
    const { commit = "" } = await world.downloaded();
    rmSync(join(world.repoDir(), "refs"), { recursive: true });
    expect((await world.resolve("org/m", { offline: true })).commit).toBe(commit);
    world.hub.put("org/m", { ...modelFiles(), "config.json": '{"a":1}' });
    await world.resolve("org/m", { refresh: true });
    rmSync(join(world.repoDir(), "refs"), { recursive: true });
    await expect(world.resolve("org/m", { offline: true })).rejects.toMatchObject({ kind: "offline" });
  });

  test("the folder's place: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME", async () => {
    const places: [string, string, string][] = [
      ["HF_HUB_CACHE", "a", "a"],
      ["HUGGINGFACE_HUB_CACHE", "b", "b"],
      ["HF_HOME", "c", "c/hub"],
      ["XDG_CACHE_HOME", "d", "d/huggingface/hub"],
    ];
    for (const [, value, place] of places) {
      const env = world.env;
      for (const [name, set] of places.slice(places.findIndex(([, v]) => v === value)))
        env[name] = join(world.home, set);
      expect(dirOf(await world.resolve("org/m"))).toStartWith(`${join(world.home, place)}/models--org--m/`);
      world.env = { HOME: world.home, HF_ENDPOINT: world.hub.url };
    }
  });
});

test("an unknown bare name: the nearest ids and folders", async () => {
  plant(".cache", "mlx_dspark", "models", "my-model");
  await expect(world.resolve("qwen3-8")).rejects.toThrow("did you mean qwen3-8b");
  await expect(world.resolve("my-modle")).rejects.toThrow("did you mean my-model?");
  await expect(world.resolve("zzzzzzzzzzz")).rejects.toThrow('see "mlx-dspark models"');
});
