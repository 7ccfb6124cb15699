/** A grammar as the engine thread knows it: its source, where it is compiled, who uses it. */
import type { CompileOutcome } from "../../decoding/constraint.ts";
import type { BoundRow } from "./bound-row.ts";
import type { GrammarHome } from "./grammar-home.ts";
import type { GrammarSource } from "./messages.ts";

export class GrammarEntry {
  compiled = false;
  compileMs = 0;
  /** Holders of a `CompiledConstraint`; open rows count on their own. */
  pins = 0;
  /** Times that the engine was lost over it since its last answer. */
  strikes = 0;
  /** When the worker began to compile it; null: it has not. */
  begunAt: number | null = null;
  readonly queuedAt = performance.now();
  readonly waiters = new Set<(outcome: CompileOutcome) => void>();
  readonly rows = new Set<BoundRow>();

  constructor(
    readonly key: string,
    readonly source: GrammarSource,
    readonly home: GrammarHome,
  ) {}

  get inUse(): boolean {
    return !this.compiled || this.pins > 0 || this.rows.size > 0;
  }

  /** Tells all who wait, once. */
  deliver(outcomeFor: () => CompileOutcome): void {
    const waiters = [...this.waiters];
    this.waiters.clear();
    for (const done of waiters) done(outcomeFor());
  }
}
