/**
 * One grammar worker with what it holds, across restarts: after any exception its instance counts as lost, and the next
 * one compiles the grammars in use anew and accepts again what each of their rows has committed (structured-output.md §2).
 */
import type { BoundRow } from "./bound-row.ts";
import type { GrammarEntry } from "./grammar-entry.ts";
import type { FromGrammarWorker } from "./messages.ts";
import { type GrammarCall, LostWorker } from "./shared-block.ts";
import { type SlotOptions, WorkerSlot } from "./worker-slot.ts";

export interface HomeEvents {
  compiled(entry: GrammarEntry, ms: number): void;
  /** The grammar will not be compiled. @param fault whose: the grammar's own, or the engine's */
  refused(entry: GrammarEntry, reason: string, fault: "grammar" | "engine"): void;
  restarted(): void;
}

/** A grammar over which the engine is lost as often as that, without an answer in between, is given up. */
const STRIKES_MAX = 2;

export class GrammarHome {
  readonly entries = new Map<string, GrammarEntry>();
  readonly rows = new Map<number, BoundRow>();
  private slot: WorkerSlot;
  private lastReason = "";
  /** A row has found the instance gone and deals with it. */
  private inLoss = false;

  constructor(
    private readonly options: SlotOptions,
    private readonly patienceMs: number,
    private readonly events: HomeEvents,
  ) {
    this.slot = this.start();
  }

  private start(): WorkerSlot {
    const slot: WorkerSlot = new WorkerSlot(this.options, (message) => {
      if (slot === this.slot) this.receive(message);
    });
    return slot;
  }

  compile(entry: GrammarEntry): void {
    this.entries.set(entry.key, entry);
    this.slot.send({ type: "compile", key: entry.key, source: entry.source });
    this.hold();
  }

  drop(entry: GrammarEntry): void {
    if (!this.entries.delete(entry.key)) return;
    if (entry.compiled) this.slot.send({ type: "drop", key: entry.key });
  }

  open(row: BoundRow): void {
    this.rows.set(row.id, row);
    this.slot.send({ type: "open", opening: row.opening() });
  }

  close(row: BoundRow): void {
    if (this.rows.delete(row.id)) this.slot.send({ type: "close", row: row.id });
  }

  /** Handles what has come, without the event loop. */
  poll(): void {
    const { slot } = this;
    for (const message of slot.received()) if (slot === this.slot) this.receive(message);
  }

  /** Posts a call and gives its first answer. @throws LostWorker after the restart that follows from it */
  call(call: GrammarCall, row: BoundRow): number {
    return this.guarded(row, () => {
      // An answer that nobody wanted may still be under way: the next call would be taken for it.
      this.slot.shared.done(this.patienceMs);
      this.slot.shared.post(call);
      return this.slot.shared.answered(this.patienceMs);
    });
  }

  /** The masks of the call before. @throws LostWorker after the restart that follows from it */
  masks(rows: number, row: BoundRow): Uint32Array {
    return this.guarded(row, () => {
      this.slot.shared.done(this.patienceMs);
      return this.slot.shared.masks(rows);
    });
  }

  /** The ids of the call before. @throws LostWorker */
  forced(count: number, row: BoundRow): number[] {
    return this.guarded(row, () => {
      this.slot.shared.done(this.patienceMs);
      return this.slot.shared.forced(count);
    });
  }

  private guarded<T>(row: BoundRow, work: () => T): T {
    try {
      const answer = work();
      // Only losses in a row are the grammar's fault.
      row.entry.strikes = 0;
      return answer;
    } catch (error) {
      if (error instanceof LostWorker) this.lost(row);
      throw error;
    }
  }

  /** The instance is gone while `row` waited for it. A compile that it died of says so itself. */
  private lost(row: BoundRow): void {
    const { slot } = this;
    this.inLoss = true;
    this.poll();
    this.inLoss = false;
    if (slot !== this.slot) return;
    this.strike(row.entry);
    this.restart();
  }

  private strike(entry: GrammarEntry): void {
    entry.strikes++;
    if (entry.strikes >= STRIKES_MAX) this.giveUp(entry, this.lastReason, "engine");
  }

  private giveUp(entry: GrammarEntry, reason: string, fault: "grammar" | "engine"): void {
    for (const row of entry.rows) {
      row.fail(`grammar engine failed${reason === "" ? "" : `: ${reason}`}`);
      this.rows.delete(row.id);
    }
    this.entries.delete(entry.key);
    if (!entry.compiled) this.events.refused(entry, reason === "" ? "grammar engine failed" : reason, fault);
  }

  private receive(message: FromGrammarWorker): void {
    const entry = "key" in message ? this.entries.get(message.key) : undefined;
    switch (message.type) {
      case "begun":
        if (entry !== undefined) entry.begunAt = performance.now();
        break;
      case "compiled":
        if (entry === undefined) break;
        entry.compiled = true;
        this.events.compiled(entry, message.ms);
        break;
      case "refused":
        this.restartWithout(entry, message.reason);
        break;
      case "lost": {
        this.lastReason = message.reason;
        if (this.inLoss) break;
        for (const one of [...this.entries.values()]) if (!one.compiled) this.strike(one);
        this.restart();
      }
    }
    this.hold();
  }

  /** Ends the worker over a grammar that it refused, or that takes it too long. */
  restartWithout(entry: GrammarEntry | undefined, reason: string): void {
    if (entry !== undefined) this.giveUp(entry, reason, "grammar");
    this.restart();
  }

  private restart(): void {
    this.slot.end();
    this.slot = this.start();
    this.events.restarted();
    const used = [...this.entries.values()].filter(({ compiled, inUse }) => compiled && inUse);
    for (const entry of [...this.entries.values()]) {
      // Nobody needs it now: whoever does next has it compiled again.
      if (entry.compiled && !entry.inUse) this.entries.delete(entry.key);
    }
    this.slot.send({
      type: "restore",
      grammars: used.map(({ key, source }) => ({ key, source })),
      rows: [...this.rows.values()].map((row) => row.opening()),
    });
    for (const entry of this.entries.values()) {
      if (entry.compiled) continue;
      entry.begunAt = null;
      this.slot.send({ type: "compile", key: entry.key, source: entry.source });
    }
  }

  private hold(): void {
    this.slot.hold([...this.entries.values()].some(({ compiled }) => !compiled));
  }

  end(): void {
    this.slot.end();
    for (const row of [...this.rows.values()]) row.fail("the grammar engine has been ended");
    this.rows.clear();
  }
}
