/** A model's thoughts beside its answer: on stderr, dimmed on a terminal, so that a pipe gets the answer alone. */
import type { CliIo, TextOutput } from "./io.ts";

const DIM = "\u001b[2m";
const NORMAL = "\u001b[22m";

export class Thoughts {
  private open = false;
  private lineEnded = true;
  private readonly dimmed: boolean;

  constructor(
    private readonly out: TextOutput,
    env: CliIo["env"],
  ) {
    this.dimmed = out.isTTY && !env.NO_COLOR;
  }

  write(text: string): void {
    if (!this.open && this.dimmed) this.out.write(DIM);
    this.open = true;
    this.lineEnded = text.endsWith("\n");
    this.out.write(text);
  }

  /** What follows is not a thought. */
  end(): void {
    if (!this.open) return;
    this.open = false;
    this.out.write(`${this.lineEnded ? "" : "\n"}${this.dimmed ? NORMAL : ""}`);
  }

  whole(text: string): void {
    if (text !== "") this.write(text);
    this.end();
  }
}
