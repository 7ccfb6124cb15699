/**
 * Progress of a load on stderr: one line that is rewritten on a terminal, else a line at each new phase and every ten
 * per cent.
 */
import type { LoadProgress } from "../engine/protocol.ts";
import type { TextOutput } from "./io.ts";

const BAR_WIDTH = 24;
const ERASE_LINE = "\r\u001b[K";

export class ProgressLine {
  private phase: LoadProgress["phase"] | null = null;
  private tenth = -1;
  private shown = false;

  constructor(private readonly out: TextOutput) {}

  update(progress: LoadProgress): void {
    if (this.out.isTTY) {
      this.shown = true;
      this.out.write(ERASE_LINE + clipped(lineOf(progress), this.out.columns));
      return;
    }
    const tenth = progress.fraction === null ? -1 : Math.floor(progress.fraction * 10);
    if (progress.phase === this.phase && tenth <= this.tenth) return;
    this.phase = progress.phase;
    this.tenth = tenth;
    this.out.write(`${lineOf(progress)}\n`);
  }

  /** Takes the line away; what follows starts on a clean one. */
  clear(): void {
    if (this.shown) this.out.write(ERASE_LINE);
    this.shown = false;
  }
}

function lineOf({ phase, fraction, bytesDone, bytesTotal, bytesPerSecond, detail }: LoadProgress): string {
  const parts: string[] = [phase];
  if (fraction !== null) parts.push(bar(fraction), `${Math.floor(fraction * 100)} %`);
  if (bytesDone !== null)
    parts.push(bytesTotal === null ? size(bytesDone) : `${size(bytesDone)} of ${size(bytesTotal)}`);
  if (bytesPerSecond !== null) parts.push(`${size(bytesPerSecond)}/s`);
  if (detail !== "") parts.push(detail);
  return parts.join("  ");
}

function bar(fraction: number): string {
  const filled = Math.round(Math.min(1, Math.max(0, fraction)) * BAR_WIDTH);
  return `${"█".repeat(filled)}${"░".repeat(BAR_WIDTH - filled)}`;
}

/** Decimal units, as disks and downloads are measured. */
export function size(bytes: number): string {
  if (bytes >= 1e9) return `${(bytes / 1e9).toFixed(2)} GB`;
  if (bytes >= 1e6) return `${(bytes / 1e6).toFixed(1)} MB`;
  return `${(bytes / 1e3).toFixed(0)} kB`;
}

/** Cut to the terminal's width, so that rewriting the line works. */
function clipped(line: string, columns: number): string {
  const characters = [...line];
  return characters.length < columns ? line : characters.slice(0, Math.max(0, columns - 1)).join("");
}
