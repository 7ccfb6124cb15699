/**
 * A program under another's name: it notes its arguments, its environment and what the server answers it, then ends as
 * it is told to. A small shell script starts it, as npm's own wrappers do.
 */
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const PROGRAM = `
import { existsSync, writeFileSync } from "node:fs";
const base = process.env.ANTHROPIC_BASE_URL ?? process.env.FAKE_URL;
const health = base === undefined ? null : await (await fetch(base + "/health")).json();
const files = {};
for (const arg of process.argv.slice(2)) if (existsSync(arg)) files[arg] = await Bun.file(arg).text();
process.on("SIGTERM", () => process.exit(7));
writeFileSync(process.env.FAKE_NOTES, JSON.stringify({ args: process.argv.slice(2), env: process.env, health, files }));
if (process.env.FAKE_WAITS === "yes") await Bun.sleep(20_000);
if (process.env.FAKE_KILLS === "yes") process.kill(process.pid, "SIGKILL");
process.exit(Number(process.env.FAKE_CODE ?? 0));
`;

export interface Notes {
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly health: { readonly status?: string; readonly model?: string } | null;
  readonly files: Readonly<Record<string, string>>;
}

export interface FakeClient extends Disposable {
  /** For the command that is to find it. */
  readonly env: Readonly<Record<string, string>>;
  readonly home: string;
  /** null: it has not got so far. */
  notes(): Notes | null;
}

export function fakeClient(name: string): FakeClient {
  const folder = mkdtempSync(join(tmpdir(), "fake-client-"));
  const notes = join(folder, "notes.json");
  writeFileSync(join(folder, "program.ts"), PROGRAM);
  writeFileSync(join(folder, name), `#!/bin/sh\nexec '${process.execPath}' '${join(folder, "program.ts")}' "$@"\n`);
  chmodSync(join(folder, name), 0o755);
  return {
    env: { PATH: folder, HOME: folder, FAKE_NOTES: notes },
    home: folder,
    notes: () => {
      try {
        return JSON.parse(readFileSync(notes, "utf8")) as Notes;
      } catch {
        return null; // Not written yet, or half.
      }
    },
    [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }),
  };
}
