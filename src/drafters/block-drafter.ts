/**
 * A drafter whose drafts come from one forward over a block [anchor, mask, mask, …]: DSpark, DFlash and DFlash 2. What
 * they share is here (block, contexts, sessions); how hidden states become tokens is the `BlockHead` of each. Context
 * rows are appended as soon as positions are committed; those of plain steps wait for each other, since a row alone costs
 * the drafter nearly as much as many.
 */
import { bytesOf, concatenate, dim, dtypeOf, free, keep, type MlxArray, scope } from "../mlx/array.ts";
import { slice, view } from "../mlx/ops.ts";
import type { Backbone } from "./backbone.ts";
import type { Context } from "./context.ts";
import type { Drafter, DrafterKind, DrafterSession, DraftRow, Proposal, ProposalLaw } from "./drafter.ts";

/** The ends of a drafter: how slots are embedded, and how hidden states become drafts. */
export interface BlockHead {
  readonly draftVocab: number;
  readonly hasConfidence: boolean;
  /** Slots of one or more rows, int32 [R·width] → [R·width, H]. */
  embed(ids: MlxArray, width: number): MlxArray;
  /** hidden [n, H] of predicting slots → logits [n, width of the head], before anything that depends on tokens. */
  logits(hidden: MlxArray): MlxArray;
  /** The drafts of one row: hidden [m, H] and its `logits` [m, …], anchor int32 [1]. */
  choose(logits: MlxArray, hidden: MlxArray, anchor: MlxArray, law: ProposalLaw): Proposal;
  dispose(): void;
}

export interface BlockDrafterParts {
  readonly kind: DrafterKind;
  readonly layout: string;
  readonly taps: readonly number[];
  readonly block: number;
  readonly logitsStart: number;
  readonly backbone: Backbone;
  readonly head: BlockHead;
  /** int32 [block − 1], all the mask's id; owned. */
  readonly masks: MlxArray;
  readonly bytes: number;
  readonly notes: readonly string[];
}

/** A row of a block with everything that its part of the batch needs. */
interface PlannedRow {
  readonly session: Session;
  readonly anchor: MlxArray;
  readonly count: number;
  readonly law: ProposalLaw;
}

export class BlockDrafter implements Drafter {
  readonly kind: DrafterKind;
  readonly layout: string;
  readonly taps: readonly number[];
  readonly maxDraft: number;
  readonly draftVocab: number;
  readonly hasConfidence: boolean;
  readonly bytes: number;
  readonly notes: readonly string[];
  readonly backbone: Backbone;
  readonly head: BlockHead;
  /** Slots depend on earlier ones only, so that unneeded slots at the end may be left out. */
  private readonly causal: boolean;

  constructor(private readonly parts: BlockDrafterParts) {
    this.kind = parts.kind;
    this.layout = parts.layout;
    this.taps = parts.taps;
    this.maxDraft = parts.block - parts.logitsStart;
    this.draftVocab = parts.head.draftVocab;
    this.hasConfidence = parts.head.hasConfidence;
    this.bytes = parts.bytes;
    this.notes = parts.notes;
    this.backbone = parts.backbone;
    this.head = parts.head;
    this.causal = parts.backbone.settings.layers.every((mask) => mask.causal);
  }

  newSession(capacityMax: number, start = 0): DrafterSession {
    return new Session(this, this.backbone.newContexts(capacityMax + this.parts.block, start), start);
  }

  propose(rows: readonly DraftRow[]): Proposal[] {
    const planned = rows.map((row) => this.planned(row));
    for (const { session } of planned) session.appendWaiting();
    const { logitsStart } = this.parts;
    const most = planned.reduce((sum, row) => Math.max(sum, row.count), 0);
    const width = this.causal ? logitsStart + most : this.parts.block;
    const states = this.hidden(planned, width);
    const hidden = dim(states, 1);
    const predicting = planned.map(({ count }, i) => {
      const from = i * width + logitsStart;
      return slice(states, [from, 0], [from + count, hidden]);
    });
    const logits = this.head.logits(concatenate(predicting, 0));
    let at = 0;
    return planned.map(({ anchor, count, law }, i) => {
      const own = planned.length === 1 ? logits : slice(logits, [at, 0], [at + count, dim(logits, 1)]);
      at += count;
      return this.head.choose(own, predicting[i] ?? states, anchor, law);
    });
  }

  /** The block's hidden states behind the final norm, [R·width, H]. */
  hidden(rows: readonly { readonly session: Session; readonly anchor: MlxArray }[], width: number): MlxArray {
    const { masks } = this.parts;
    const fill = width === dim(masks, 0) + 1 ? masks : slice(masks, [0], [width - 1]);
    const ids = concatenate(
      rows.flatMap(({ anchor }) => (width === 1 ? [anchor] : [anchor, fill])),
      0,
    );
    const blocks = rows.map(({ session }) => ({ contexts: session.contexts, position: session.length }));
    return this.backbone.run(this.head.embed(ids, width), blocks, width);
  }

  private planned({ session, anchor, cap, law }: DraftRow): PlannedRow {
    if (!(session instanceof Session) || session.drafter !== this) {
      throw new TypeError("the session belongs to another drafter");
    }
    if (!Number.isInteger(cap) || cap < 1) throw new RangeError(`a draft of ${cap} tokens`);
    const count = Math.min(cap, this.maxDraft);
    return { session, anchor: dtypeOf(anchor) === "uint32" ? view(anchor, "int32") : anchor, count, law };
  }

  dispose(): void {
    this.backbone.dispose();
    this.head.dispose();
    free(this.parts.masks);
  }
}

/** Rows of plain steps that wait at most before they are appended together. */
const WAITING_MAX = 64;

/** The context of one row. */
export class Session implements DrafterSession {
  /** Taps of the newest positions, which the contexts do not hold yet. */
  private waiting: MlxArray[] = [];
  private waitingRows = 0;

  constructor(
    readonly drafter: BlockDrafter,
    readonly contexts: readonly Context[],
    private position: number,
  ) {}

  get length(): number {
    return this.position;
  }

  propose(anchor: MlxArray, cap: number, law: ProposalLaw): Proposal {
    const [proposal] = this.drafter.propose([{ session: this, anchor, cap, law }]);
    if (proposal === undefined) throw new RangeError("a block without rows");
    return proposal;
  }

  committed(taps: MlxArray, late = false): void {
    const count = dim(taps, 0);
    if (count === 0) return;
    if (late || this.waitingRows > 0) {
      this.waiting.push(keep(taps));
      this.waitingRows += count;
      this.position += count;
      if (!late || this.waitingRows >= WAITING_MAX) this.appendWaiting();
      return;
    }
    this.drafter.backbone.append(taps, this.contexts, this.position);
    this.position += count;
  }

  /** Brings the contexts up to `length`; inside a scope. */
  appendWaiting(): void {
    if (this.waitingRows === 0) return;
    this.drafter.backbone.append(concatenate(this.waiting, 0), this.contexts, this.position - this.waitingRows);
    this.forgetWaiting();
  }

  trim(length: number): void {
    if (length < 0 || length > this.position) {
      throw new RangeError(`cannot trim a context of ${this.position} positions to ${length}`);
    }
    const held = this.position - this.waitingRows;
    if (length <= held) {
      this.forgetWaiting();
      for (const context of this.contexts) context.trim(length);
    } else this.keepWaiting(length - held);
    this.position = length;
  }

  /** Keeps the first `rows` of those that wait; at least one. */
  private keepWaiting(rows: number): void {
    if (rows === this.waitingRows) return;
    const first = scope(() => {
      const all = concatenate(this.waiting, 0);
      return keep(slice(all, [0, 0], [rows, dim(all, 1)]));
    });
    this.forgetWaiting();
    this.waiting = [first];
    this.waitingRows = rows;
  }

  private forgetWaiting(): void {
    for (const taps of this.waiting.splice(0)) free(taps);
    this.waitingRows = 0;
  }

  arrays(): readonly MlxArray[] {
    // Those that wait longer were evaluated with their own steps.
    return [...this.contexts.flatMap((context) => context.arrays()), ...this.waiting.slice(-1)];
  }

  get bytes(): number {
    const contexts = this.contexts.reduce((sum, context) => sum + context.bytes, 0);
    return this.waiting.reduce((sum, taps) => sum + bytesOf(taps), contexts);
  }

  close(): void {
    this.forgetWaiting();
    for (const context of this.contexts) context.dispose();
  }
}
