/**
 * The grammar engine as the engine thread uses it: compiles each grammar once, keeps the newest, and gives rows. A compile
 * holds a worker for 0.1–2 s and compiled grammars cannot move, so a new grammar goes to a worker whose rows it does not
 * hold up; there are a few workers at most, started when needed.
 */
import {
  type CompiledConstraint,
  type CompileOutcome,
  ConstraintError,
  type ConstraintSpec,
  type GrammarCompiler,
  type RowConstraint,
} from "../../decoding/constraint.ts";
import { BoundRow } from "./bound-row.ts";
import { GrammarEntry } from "./grammar-entry.ts";
import { GrammarHome, type HomeEvents } from "./grammar-home.ts";
import { GrammarMeter } from "./metrics.ts";
import type { SlotOptions } from "./worker-slot.ts";

export interface PoolOptions extends SlotOptions {
  /** Workers at most; each takes 35–100 MB. */
  readonly workersMax?: number;
  /** How long a worker may be silent before it counts as lost, in ms; far above any mask or start. */
  readonly patienceMs?: number;
  /** Deadline of one compile, in ms. */
  readonly compileMsMax?: number;
  /** Counts what the pool does. */
  readonly meter?: GrammarMeter;
}

/** structured-output.md §7. */
const ENTRIES_MAX = 64;
const COMPILE_MS_MAX = 5000;
/** With that much before it in the queue, or a worker that does not start, a compile is given up. */
const START_MS_MAX = 30_000;
const WORKERS_MAX = 3;
const PATIENCE_MS = 10_000;

interface RowLimits {
  readonly eosIds: readonly number[];
  readonly maxNewTokens?: number;
}

class Compiled implements CompiledConstraint {
  private held = true;

  constructor(
    readonly entry: GrammarEntry,
    readonly cached: boolean,
  ) {
    entry.pins++;
  }

  get compileMs(): number {
    return this.entry.compileMs;
  }

  [Symbol.dispose](): void {
    if (this.held) this.entry.pins--;
    this.held = false;
  }
}

export class GrammarPool implements GrammarCompiler {
  private readonly homes: GrammarHome[] = [];
  /** Newest use last. */
  private readonly entries = new Map<string, GrammarEntry>();
  private readonly meter: GrammarMeter;
  private nextRow = 1;
  private deadline: NodeJS.Timeout | null = null;
  private closed = false;

  constructor(private readonly options: PoolOptions) {
    this.meter = options.meter ?? new GrammarMeter();
  }

  /** `done` is called before this returns where the grammar is there already. */
  compile(spec: ConstraintSpec, done: (outcome: CompileOutcome) => void): () => void {
    if (this.closed) {
      done(refusal("internal", "the grammar engine has been ended"));
      return () => undefined;
    }
    const { ebnf, markers, counters } = spec;
    const key = new Bun.CryptoHasher("sha256").update(JSON.stringify([ebnf, markers, counters])).digest("hex");
    const entry = this.known(key) ?? this.begin(key, { ebnf, markers, counters });
    if (entry.compiled) {
      this.meter.hit();
      done({ compiled: new Compiled(entry, true), error: null });
      return () => undefined;
    }
    entry.waiters.add(done);
    return () => entry.waiters.delete(done);
  }

  open(compiled: CompiledConstraint, { eosIds }: RowLimits): RowConstraint {
    if (!(compiled instanceof Compiled)) throw new TypeError("this grammar was compiled elsewhere");
    if (eosIds.length === 0) throw new ConstraintError("invalid_request", "a constrained text needs an end: no EOS id");
    const { vocabSize } = this.options;
    const { entry, cached } = compiled;
    // A restart may have dropped it in the meantime.
    if (this.entries.get(entry.key) !== entry || entry.home.entries.get(entry.key) !== entry) {
      throw new ConstraintError("internal", "grammar engine failed");
    }
    return new BoundRow(this.nextRow++, entry, { eosIds, vocabSize, cached, meter: this.meter });
  }

  poll(): void {
    for (const home of this.homes) home.poll();
    this.checkDeadlines();
  }

  close(): void {
    this.closed = true;
    if (this.deadline !== null) clearTimeout(this.deadline);
    for (const home of this.homes) home.end();
    for (const entry of this.entries.values()) {
      entry.deliver(() => refusal("internal", "the grammar engine has been ended"));
    }
    this.entries.clear();
  }

  /** The entry under `key`, as the newest; null: none that its worker still has. */
  private known(key: string): GrammarEntry | null {
    const entry = this.entries.get(key);
    if (entry === undefined) return null;
    this.entries.delete(key);
    if (entry.home.entries.get(key) !== entry) return null;
    this.entries.set(key, entry);
    return entry;
  }

  private begin(key: string, source: GrammarEntry["source"]): GrammarEntry {
    const entry = new GrammarEntry(key, source, this.homeForCompile());
    this.entries.set(key, entry);
    this.evict();
    entry.home.compile(entry);
    this.watch();
    return entry;
  }

  /** The idlest worker; a new one while all have rows. */
  private homeForCompile(): GrammarHome {
    const compiling = (home: GrammarHome) => [...home.entries.values()].filter(({ compiled }) => !compiled).length;
    const load = (home: GrammarHome) => 1000 * home.rows.size + compiling(home);
    const [idlest] = [...this.homes].sort((a, b) => load(a) - load(b));
    const { workersMax = WORKERS_MAX } = this.options;
    if (idlest !== undefined && (idlest.rows.size === 0 || this.homes.length >= workersMax)) return idlest;
    const home = new GrammarHome(this.options, this.options.patienceMs ?? PATIENCE_MS, this.events);
    this.homes.push(home);
    return home;
  }

  private readonly events: HomeEvents = {
    compiled: (entry, ms) => {
      entry.compileMs = ms;
      this.meter.compiled(ms);
      entry.deliver(() => ({ compiled: new Compiled(entry, false), error: null }));
    },
    refused: (entry, reason, fault) => {
      if (this.entries.get(entry.key) === entry) this.entries.delete(entry.key);
      entry.deliver(() => refusal(fault === "grammar" ? "invalid_request" : "internal", reason));
    },
    restarted: () => this.meter.restarted(),
  };

  private evict(): void {
    for (const [key, entry] of this.entries) {
      if (this.entries.size <= ENTRIES_MAX) return;
      if (entry.inUse) continue;
      this.entries.delete(key);
      entry.home.drop(entry);
    }
  }

  /** A busy engine polls; an idle one is woken. */
  private watch(): void {
    if (this.deadline !== null) return;
    this.deadline = setTimeout(() => {
      this.deadline = null;
      this.checkDeadlines();
      if ([...this.entries.values()].some(({ compiled }) => !compiled)) this.watch();
    }, DEADLINE_CHECK_MS);
    this.deadline.unref();
  }

  private checkDeadlines(): void {
    const now = performance.now();
    const { compileMsMax = COMPILE_MS_MAX } = this.options;
    for (const entry of [...this.entries.values()]) {
      if (entry.compiled) continue;
      if (entry.begunAt !== null && now - entry.begunAt > compileMsMax) {
        entry.home.restartWithout(entry, "schema takes too long to compile");
      } else if (entry.begunAt === null && now - entry.queuedAt > START_MS_MAX) {
        entry.home.restartWithout(entry, "too many grammars wait to be compiled");
      }
    }
  }
}

const DEADLINE_CHECK_MS = 250;

function refusal(kind: ConstraintError["kind"], message: string): CompileOutcome {
  return { compiled: null, error: new ConstraintError(kind, message) };
}
