/**
 * The ways in which one loaded pair can decode. A request may ask for another one than the pair was loaded with, so that
 * modes are compared on the same weights in one process, and a caller of the library chooses call by call. What is
 * derived shares the drafter, its measured costs and, under `auto`, the one cap controller.
 */
import { fallbackCap } from "../decoding/calibrate.ts";
import { CapController } from "../decoding/cap-controller.ts";
import { LONG_DRAFT } from "../decoding/lookup-index.ts";
import { Speculator, type SpeculatorOptions } from "../decoding/speculator.ts";
import type { RequestSpeculation } from "./protocol.ts";

/** Lookup on a pair that was loaded without any drafting: nothing was measured. */
const UNMEASURED: SpeculatorOptions = {
  drafter: null,
  cap: 0,
  curves: null,
  lookup: true,
  longDraft: LONG_DRAFT,
  confidenceThreshold: 0,
};

export class Policies {
  private auto: number | CapController | null = null;

  /** @param loaded how the pair decodes unless told otherwise; null: without drafts */
  constructor(private readonly loaded: Speculator | null) {}

  /** How a request decodes; null: plain steps. */
  of(wish: RequestSpeculation | undefined): Speculator | null {
    if (wish === undefined) return this.loaded;
    if (wish.mode === "baseline" || (wish.mode === "pair" && this.loaded === null)) return null;
    const base = this.loaded?.options ?? UNMEASURED;
    const longDraft = wish.lookupLongDraft ?? base.longDraft;
    if (wish.mode === "lookup" || base.drafter === null) {
      return new Speculator({ ...base, drafter: null, cap: 0, lookup: true, longDraft });
    }
    return new Speculator({
      ...base,
      cap: this.cap(wish.maxDraft, base),
      lookup: wish.lookupDrafts ?? base.lookup,
      longDraft,
      confidenceThreshold: wish.confidenceThreshold ?? base.confidenceThreshold,
    });
  }

  private cap(wanted: RequestSpeculation["maxDraft"], base: SpeculatorOptions): SpeculatorOptions["cap"] {
    if (wanted === undefined) return base.cap;
    if (wanted !== "auto") return wanted;
    if (typeof base.cap !== "number" || base.drafter === null) return base.cap;
    const { curves, drafter } = base;
    this.auto ??=
      curves === null
        ? fallbackCap(drafter.kind === "dspark" ? "dspark" : "dflash", drafter.maxDraft)
        : new CapController(curves, { maxCap: drafter.maxDraft });
    return this.auto;
  }
}
