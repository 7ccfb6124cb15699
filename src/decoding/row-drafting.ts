/** What a row keeps in order to draft: the index over its own text, the gates on it, and its drafter's context. */
import type { DrafterSession } from "../drafters/drafter.ts";
import { BaseDraftGate, LongDraftGate } from "./lookup-gate.ts";
import type { LookupIndex } from "./lookup-index.ts";

export class RowDrafting {
  readonly long = new LongDraftGate();
  readonly base = new BaseDraftGate();
  /** True when the gate has let a lookup draft through that has not been verified yet. */
  admitted = false;
  /** True while a step with a watched draft is in flight. */
  watching = false;

  constructor(
    readonly lookup: LookupIndex | null,
    readonly session: DrafterSession | null,
  ) {}
}
