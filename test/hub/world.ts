/**
 * What every test of this folder starts from: an empty home, a hub with the small model `org/m`, and a resolution
 * that is tuned to small parts and short waits.
 */
import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type ResolvedModel, type ResolveOptions, resolveModel } from "../../src/hub/resolve.ts";
import { LocalHub } from "./server.ts";

export const PART_BYTES = 16 * 1024;

/** Deterministic bytes that do not compress and differ by seed. */
export function noise(length: number, seed: number): Uint8Array {
  const bytes = new Uint8Array(length);
  let state = (seed * 2654435761 + 1) >>> 0;
  for (let i = 0; i < length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    bytes[i] = state >>> 24;
  }
  return bytes;
}

export const SHARD_A = "model-00001-of-00002.safetensors";
export const SHARD_B = "model-00002-of-00002.safetensors";

/** A repository as it is published: what is wanted, and much that is not. */
export function modelFiles(shardBytes = 5 * PART_BYTES + 100): Record<string, Uint8Array | string> {
  const weightMap = { "a.weight": SHARD_A, "b.weight": SHARD_B, "c.weight": SHARD_A };
  return {
    "README.md": "# a model",
    "config.json": '{"model_type":"llama"}',
    "tokenizer.json": '{"model":{}}',
    "tokenizer_config.json": "{}",
    "chat_template.jinja": "{{ messages }}",
    "additional_chat_templates/tools.jinja": "{{ tools }}",
    "added_tokens.json": "",
    "modeling_custom.py": "raise SystemExit",
    "pytorch_model.bin": noise(100, 9),
    "original/consolidated.safetensors": noise(100, 8),
    "consolidated.safetensors": noise(100, 7),
    "model.safetensors.index.json": JSON.stringify({ metadata: {}, weight_map: weightMap }),
    [SHARD_A]: noise(shardBytes, 1),
    [SHARD_B]: noise(shardBytes, 2),
  };
}

/** The files of `modelFiles` that a download of a target takes. */
export const CHOSEN = [
  "added_tokens.json",
  "additional_chat_templates/tools.jinja",
  "chat_template.jinja",
  "config.json",
  SHARD_A,
  SHARD_B,
  "model.safetensors.index.json",
  "tokenizer.json",
  "tokenizer_config.json",
];

export class World {
  readonly home = realpathSync(mkdtempSync(join(tmpdir(), "hub-test-")));
  readonly hub: LocalHub;
  readonly notices: string[] = [];
  env: Record<string, string>;

  private constructor(hub: LocalHub) {
    this.hub = hub;
    this.env = { HOME: this.home, HF_ENDPOINT: hub.url };
  }

  static async make(): Promise<World> {
    const world = new World(await new LocalHub().start());
    world.hub.put("org/m", modelFiles());
    return world;
  }

  get cacheDir(): string {
    return join(this.home, ".cache", "huggingface", "hub");
  }

  /** `…/models--org--m` of a repository. */
  repoDir(repo = "org/m"): string {
    return join(this.cacheDir, `models--${repo.replace("/", "--")}`);
  }

  resolve(name: string, options: Partial<ResolveOptions> = {}): Promise<ResolvedModel> {
    return resolveModel(name, {
      offline: false,
      env: this.env,
      onNotice: (text) => this.notices.push(text),
      ...options,
      tuning: {
        partBytes: PART_BYTES,
        bytesPerConnection: 2 * PART_BYTES,
        retryDelaysMs: [1, 2, 4, 8, 16],
        http: { connectMs: 250, idleMs: 250 },
        freeBytes: async () => 1e12,
        ...options.tuning,
      },
    });
  }

  /** Downloads without interference, then clears the log. */
  async downloaded(name = "org/m"): Promise<ResolvedModel> {
    const found = await this.resolve(name);
    this.hub.reset();
    this.notices.length = 0;
    return found;
  }

  close(): void {
    this.hub.stop();
    rmSync(this.home, { recursive: true, force: true });
  }
}

/** The folder of a result that must be one. */
export function dirOf(found: ResolvedModel): string {
  if ("dir" in found) return found.dir;
  throw new Error(`a folder was expected, not ${found.file}`);
}
