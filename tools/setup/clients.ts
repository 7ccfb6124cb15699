/**
 * Installs the coding agents that `test/clients/` drives into `build/clients/<name>`, each pinned in `package.json`. They
 * are large and not needed for development, hence no dependencies. One that cannot be installed or does not run here is
 * noted with its reason in `<name>.skipped`, which its tests report; the next call tries it again.
 *
 * Usage: bun tools/setup/clients.ts
 */
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { requireTools, run, step } from "./run.ts";
import { clients } from "./versions.ts";

const folder = join(import.meta.dir, "../../build/clients");
const PIN_FILE = ".pinned";
/** A program that hangs at its first start is of no use. */
const VERSION_LIMIT_MS = 60_000;

interface Client {
  readonly package: keyof typeof clients;
  readonly program: string;
  /** npm may be told not to run install scripts; what one of them does is then done here. */
  readonly afterInstall?: readonly string[];
}

const CLIENTS: Readonly<Record<string, Client>> = {
  claude: {
    package: "@anthropic-ai/claude-code",
    program: "claude",
    afterInstall: ["node", "node_modules/@anthropic-ai/claude-code/install.cjs"],
  },
  pi: { package: "@mariozechner/pi-coding-agent", program: "pi" },
  codex: { package: "@openai/codex", program: "codex" },
};

function install(name: string, client: Client): void {
  const pin = `${client.package}@${clients[client.package]}`;
  const target = join(folder, name);
  const pinFile = join(target, PIN_FILE);
  if (existsSync(pinFile) && readFileSync(pinFile, "utf8") === pin) return;
  console.error(`setup: ${pin}`);
  const partial = `${target}.partial`;
  for (const old of [target, partial]) rmSync(old, { recursive: true, force: true });
  mkdirSync(partial, { recursive: true });
  writeFileSync(join(partial, "package.json"), JSON.stringify({ private: true }));
  run(["npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", pin], partial);
  if (client.afterInstall !== undefined) run(client.afterInstall, partial);
  startOnce(join(partial, "node_modules/.bin", client.program), partial);
  writeFileSync(join(partial, PIN_FILE), pin);
  renameSync(partial, target);
}

function startOnce(program: string, home: string): void {
  const { exitCode, stdout, stderr } = Bun.spawnSync([program, "--version"], {
    cwd: home,
    env: { PATH: process.env.PATH ?? "", HOME: home },
    timeout: VERSION_LIMIT_MS,
  });
  if (exitCode === 0) return;
  const said = `${stdout}${stderr}`.trim().split("\n", 1)[0] ?? "";
  throw new Error(`it does not run here (exit ${exitCode ?? "by a signal"}): ${said}`);
}

await step(() => {
  requireTools(["node", "npm"]);
  mkdirSync(folder, { recursive: true });
  for (const [name, client] of Object.entries(CLIENTS)) {
    const note = join(folder, `${name}.skipped`);
    rmSync(note, { force: true });
    try {
      install(name, client);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      rmSync(join(folder, name), { recursive: true, force: true });
      rmSync(join(folder, `${name}.partial`), { recursive: true, force: true });
      writeFileSync(note, reason);
      console.error(`setup: ${name} is skipped: ${reason}`);
    }
  }
});
