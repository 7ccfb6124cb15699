/** Running the tools that set-up and build need, with an error that says how to get a missing one. */

const HOW_TO_GET: Readonly<Record<string, string>> = {
  node: "install Node.js 20 or newer (Debian: apt-get install nodejs npm)",
  npm: "install npm (Debian: apt-get install npm)",
  python3: "install Python 3 with pip (Debian: apt-get install python3 python3-pip; macOS: xcode-select --install)",
  cargo: "install Rust's cargo (Debian: apt-get install cargo; or rustup)",
  cmake: "install CMake 3.16 or newer (Debian: apt-get install cmake; or pip install cmake)",
  "c++": "install a C++20 compiler (Debian: apt-get install g++; macOS: xcode-select --install)",
};

/** Throws with instructions unless every named tool is on PATH. */
export function requireTools(names: readonly string[]): void {
  const missing = names.filter((name) => Bun.which(name) === null);
  if (missing.length === 0) return;
  const lines = missing.map((name) => `  ${name}: ${HOW_TO_GET[name] ?? "install it and put it on PATH"}`);
  throw new Error(`missing tools:\n${lines.join("\n")}`);
}

/** Runs a command; its output is shown only when it fails. Returns stdout. */
export function run(command: readonly string[], cwd?: string, env: Readonly<Record<string, string>> = {}): string {
  const result = Bun.spawnSync([...command], {
    ...(cwd === undefined ? {} : { cwd }),
    env: { ...process.env, ...env },
    stdout: "pipe",
    stderr: "pipe",
  });
  if (result.exitCode !== 0) {
    throw new Error(`${command.join(" ")} failed (exit ${result.exitCode}):\n${result.stdout}${result.stderr}`);
  }
  return result.stdout.toString();
}

/** Runs a build step; what it throws is told as a message, without a stack, and ends the process with 1. */
export async function step(work: () => void | Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    console.error(error instanceof Error ? error.message : String(error));
    process.exit(1);
  }
}
