/**
 * A grammar engine without text: automata over token ids behind the border of `decoding/constraint.ts`. Everything that
 * the border promises is checked on the way, so that a caller that breaks a promise fails its test.
 */
import {
  type CompiledConstraint,
  type CompileOutcome,
  ConstraintError,
  type ConstraintSpec,
  type ConstraintStats,
  type GrammarCompiler,
  type MaskRows,
  type RowConstraint,
} from "../../src/decoding/constraint.ts";

export interface Automaton {
  /** Whether `id`, which is no EOS, may follow in `state`. */
  legal(state: number, id: number): boolean;
  next(state: number, id: number): number;
  /** Whether the text may end. */
  accepting(state: number): boolean;
  /** What is proposed as if it had to follow; may be wrong. */
  forced(state: number): readonly number[];
}

export function specOf(name: string, part: Partial<ConstraintSpec> = {}): ConstraintSpec {
  return { kind: "ebnf", ebnf: name, markers: [], counters: null, start: { kind: "at_once" }, relaxed: [], ...part };
}

const hash = (...parts: readonly number[]) => Number(Bun.hash.xxHash32(Int32Array.from(parts)));

const STATES = 24;

/**
 * States as a schema has them: few tokens, nearly all, half of them; `common` are ids that the model likes, so that not
 * every state forbids what it would say. `guess` of what is forced is wrong now and then.
 */
export function randomAutomaton(seed: number, vocab: number, common: readonly number[] = []): Automaton {
  const kind = (state: number) => hash(seed, state, 1) % 4;
  const preferred = new Set(common);
  /** The one that is always legal, no end of sequence. */
  const way = (state: number) => 20 + (hash(seed, state, 3) % (vocab - 20));
  const rule = (state: number, id: number) => {
    const chance = hash(seed, state, id, 2) % 1000;
    switch (kind(state)) {
      case 0:
        // Exactly one.
        return id === way(state);
      case 1:
        return id === way(state) || chance < 15 || (preferred.has(id) && chance < 500);
      case 2:
        return chance < 990 || id === way(state);
      default:
        return chance < 500 || preferred.has(id) || id === way(state);
    }
  };
  const known = Array.from({ length: STATES }, () => new Int8Array(vocab).fill(-1));
  const legal = (state: number, id: number) => {
    const row = known[state] ?? new Int8Array(vocab).fill(-1);
    if (row[id] === -1) row[id] = rule(state, id) ? 1 : 0;
    return row[id] === 1;
  };
  const next = (state: number, id: number) => hash(seed, state, id % 7, 4) % STATES;
  return {
    legal,
    next,
    accepting: (state) => hash(seed, state, 5) % 5 === 0,
    forced: (state) => {
      const ids: number[] = [];
      for (let at = state; kind(at) <= 1 && ids.length < 40; ) {
        const id = way(at);
        ids.push(id);
        at = next(at, id);
      }
      // A text has more than one tokenization.
      if (ids.length > 1 && hash(seed, state, 6) % 3 === 0) ids[ids.length - 1] = hash(seed, state, 7) % vocab;
      return ids;
    },
  };
}

export interface AutomatonOptions {
  /** By the text of the grammar. */
  readonly automata: Readonly<Record<string, Automaton>>;
  readonly vocab: number;
  /** Grammars that stay with the compiler until `release`; others are there at once. */
  readonly slow?: readonly string[];
  readonly forced?: boolean;
  /** States without a way on stay so: a text that comes there cannot even end. */
  readonly deadEnds?: boolean;
}

/** Compiles at once, or when told; counts what is open. */
export class AutomatonCompiler implements GrammarCompiler {
  rowsOpen = 0;
  pinned = 0;
  polls = 0;
  closed = false;
  /** Questions so far: the answer to one is gone with the next. */
  questions = 0;
  private readonly waiting = new Map<string, Set<(outcome: CompileOutcome) => void>>();
  private released: { readonly name: string; readonly error: ConstraintError | null }[] = [];
  /** Called with every question for masks; may throw. */
  asked: (row: AutomatonRow, draft: readonly number[]) => void = () => undefined;
  /** May spoil the words of an answer. */
  spoil: (row: AutomatonRow, words: Uint32Array) => void = () => undefined;

  constructor(readonly options: AutomatonOptions) {}

  compile({ ebnf }: ConstraintSpec, done: (outcome: CompileOutcome) => void): () => void {
    if (this.options.automata[ebnf] === undefined) {
      done({ compiled: null, error: new ConstraintError("invalid_request", `no grammar ${ebnf}`) });
    } else if (this.options.slow?.includes(ebnf)) {
      const waiters = this.waiting.get(ebnf) ?? new Set();
      this.waiting.set(ebnf, waiters.add(done));
      return () => waiters.delete(done);
    } else done(this.outcome(ebnf));
    return () => undefined;
  }

  get compiling(): number {
    return [...this.waiting.values()].reduce((sum, waiters) => sum + waiters.size, 0);
  }

  /** The grammar is ready, or was refused; told at the next poll, or at once as from an event loop. */
  release(name: string, error: ConstraintError | null = null, atOnce = false): void {
    this.released.push({ name, error });
    if (atOnce) this.deliver();
  }

  poll(): void {
    this.polls++;
    this.deliver();
  }

  private deliver(): void {
    for (const { name, error } of this.released.splice(0)) {
      const waiters = this.waiting.get(name) ?? new Set();
      this.waiting.delete(name);
      for (const done of waiters) done(error === null ? this.outcome(name) : { compiled: null, error });
    }
  }

  private outcome(name: string): CompileOutcome {
    this.pinned++;
    let held = true;
    const compiled: CompiledConstraint & { readonly name: string } = {
      name,
      compileMs: 1,
      cached: false,
      [Symbol.dispose]: () => {
        if (!held) throw new Error("a grammar was given back twice");
        held = false;
        this.pinned--;
      },
    };
    return { compiled, error: null };
  }

  open(compiled: CompiledConstraint, { eosIds }: { readonly eosIds: readonly number[] }): RowConstraint {
    const { name } = compiled as CompiledConstraint & { readonly name: string };
    const automaton = this.options.automata[name];
    if (automaton === undefined) throw new Error(`no grammar ${name}`);
    if (eosIds.length === 0) throw new Error("a text without an end");
    this.rowsOpen++;
    return new AutomatonRow(this, name, automaton, new Set(eosIds));
  }

  close(): void {
    this.closed = true;
  }
}

export class AutomatonRow implements RowConstraint {
  private state = 0;
  private over = false;
  private disposed = false;
  private maskedRows = 0;
  private cutDrafts = 0;
  readonly committed: number[] = [];
  private readonly masksByState = new Map<number, Uint32Array>();
  private readonly lastStates = new Map<number, boolean>();

  constructor(
    private readonly compiler: AutomatonCompiler,
    readonly name: string,
    private readonly automaton: Automaton,
    private readonly eos: ReadonlySet<number>,
  ) {}

  get ended(): boolean {
    return this.over;
  }

  private allowed(state: number, id: number): boolean {
    // Where nothing else may follow, the text ends: few grammars have a state without a way on.
    if (this.eos.has(id)) return this.automaton.accepting(state) || (!this.deadEnds && this.isLast(state));
    return id < this.compiler.options.vocab && this.automaton.legal(state, id);
  }

  private get deadEnds(): boolean {
    return this.compiler.options.deadEnds === true;
  }

  private isLast(state: number): boolean {
    const known = this.lastStates.get(state);
    if (known !== undefined) return known;
    const { vocab } = this.compiler.options;
    const isLast = !Array.from({ length: vocab }).some((_, id) => !this.eos.has(id) && this.automaton.legal(state, id));
    this.lastStates.set(state, isLast);
    return isLast;
  }

  masks(draft: readonly number[]): MaskRows {
    this.alive();
    if (this.over) throw new Error("masks were asked for behind the end");
    this.compiler.asked(this, draft);
    const question = ++this.compiler.questions;
    const states = [this.state];
    let ends = false;
    let kept = 0;
    for (const id of draft) {
      const state = states.at(-1) ?? 0;
      if (ends || !this.allowed(state, id)) break;
      kept++;
      ends = this.eos.has(id);
      states.push(ends ? -1 : this.automaton.next(state, id));
    }
    if (kept < draft.length && !ends) this.cutDrafts++;
    const { vocab } = this.compiler.options;
    const width = Math.ceil(vocab / 32);
    return {
      kept,
      width,
      words: () => {
        this.alive();
        if (this.compiler.questions !== question) throw new Error("masks were read behind another question");
        const words = new Uint32Array((kept + 1) * width);
        for (const [row, state] of states.entries()) words.set(this.wordsOf(state, width), row * width);
        this.maskedRows += kept + 1;
        this.compiler.spoil(this, words);
        return words;
      },
    };
  }

  private wordsOf(state: number, width: number): Uint32Array {
    const known = this.masksByState.get(state);
    if (known !== undefined) return known;
    const words = new Uint32Array(width);
    for (let id = 0; id < this.compiler.options.vocab; id++) {
      if (state < 0 || this.allowed(state, id)) words[id >> 5] = (words[id >> 5] ?? 0) | (1 << (id & 31));
    }
    this.masksByState.set(state, words);
    return words;
  }

  commit(ids: readonly number[]): void {
    this.alive();
    for (const id of ids) {
      if (this.over || !this.allowed(this.state, id)) throw new Error(`${id} was committed, but is illegal`);
      this.committed.push(id);
      if (this.eos.has(id)) this.over = true;
      else this.state = this.automaton.next(this.state, id);
    }
  }

  forced(): readonly number[] {
    this.alive();
    this.compiler.questions++;
    return this.over || this.compiler.options.forced === false ? [] : this.automaton.forced(this.state);
  }

  stats(): ConstraintStats {
    const { maskedRows, cutDrafts } = this;
    return { compileMs: 1, cached: false, maskedRows, cutDrafts, maskMs: 0 };
  }

  [Symbol.dispose](): void {
    if (this.disposed) throw new Error("a row was disposed twice");
    this.disposed = true;
    this.compiler.rowsOpen--;
  }

  private alive(): void {
    if (this.disposed) throw new Error("a row was used after its end");
  }
}
