/**
 * The state of one rendering: where output goes and how much of the sandbox's budget is spent.
 * Every loop round, statement and call passes through `step`, so no template runs for ever.
 */
import { TemplateError } from "./errors.ts";
import { OUTPUT_MAX, RECURSION_MAX, STEPS_MAX, WORK_PER_STEP } from "./limits.ts";

export class Run {
  /** Line of the statement being executed, for messages. */
  line = 1;
  private text = "";
  private steps = 0;
  private depth = 0;
  private written = 0;

  constructor(
    /** The clock of `strftime_now`. */
    readonly now: () => Date,
  ) {}

  step(): void {
    this.steps += 1;
    if (this.steps > STEPS_MAX) throw new TemplateError(`the template takes more than ${STEPS_MAX} steps`);
  }

  /** Charges work that grows with `size` characters or items. */
  charge(size: number): void {
    this.steps += Math.floor(size / WORK_PER_STEP);
    this.step();
  }

  write(text: string): void {
    this.written += text.length;
    if (this.written > OUTPUT_MAX) throw new TemplateError(`the template writes more than ${OUTPUT_MAX} characters`);
    this.text += text;
  }

  /** Runs `body` and returns what it wrote instead of writing it. */
  capture(body: () => void): string {
    const outer = this.text;
    this.text = "";
    try {
      body();
      return this.text;
    } finally {
      this.written -= this.text.length;
      this.text = outer;
    }
  }

  /** Runs `body` one call deeper. */
  nested<T>(body: () => T): T {
    this.depth += 1;
    if (this.depth > RECURSION_MAX)
      throw new TemplateError(`macros call each other deeper than ${RECURSION_MAX} levels`);
    try {
      this.step();
      return body();
    } finally {
      this.depth -= 1;
    }
  }
}

/** Throws when a string about to be made would be longer than any output may be. */
export function checkLength(length: number): void {
  if (length > OUTPUT_MAX) throw new TemplateError(`a string of the template is longer than ${OUTPUT_MAX} characters`);
}
