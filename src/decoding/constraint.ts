/**
 * What a row's text must be, and the border between decoding and the grammar engine (structured-output.md §5). Decoding
 * asks a `RowConstraint` for masks along a draft and tells it what was committed; how the masks come about is not its
 * matter. Invariant: the mask behind a prefix depends on that prefix alone, so masked decoding stays lossless.
 */

/** What of the grammar's text is counted beside it: limits that a grammar cannot hold (structured-output.md §4). */
export interface CounterNode {
  /** Code points that a string here may have; null: as the grammar says. */
  readonly maxLength: number | null;
  readonly maxItems: number | null;
  readonly maxProperties: number | null;
  /** Nodes of the table that the value under a key may be; keys not named are `others`. */
  readonly properties: Readonly<Record<string, readonly number[]>>;
  readonly others: readonly number[];
  /** Of the first elements; those behind them are `items`. */
  readonly prefix: readonly (readonly number[])[];
  readonly items: readonly number[];
}

/** Limits of JSON texts by place; the tightest of the nodes that a place may be counts. */
export interface CounterTable {
  /** A JSON text begins behind each occurrence of `after`; "": at the very start. `root`: nodes that it may be. */
  readonly starts: readonly { readonly after: string; readonly root: readonly number[] }[];
  readonly nodes: readonly CounterNode[];
}

/** Where the grammar begins. Ids: markers that are one token each (others are part of the grammar). */
export type ConstraintStart =
  | { readonly kind: "at_once" }
  | {
      readonly kind: "after_reasoning";
      /** True: the prompt ends inside the thoughts. False: the model opens them itself, or does not. */
      readonly inside: boolean;
      readonly openerId: number | null;
      readonly closerId: number;
    };

/** What a row's text must be; plain values, part of `GenerateRequest`. */
export interface ConstraintSpec {
  readonly kind: "json_object" | "json_schema" | "tools" | "ebnf" | "regex" | "choice";
  /** Grammar text with the rule `root`. */
  readonly ebnf: string;
  /**
   * Control tokens that may occur; every other one is denied. In the grammar the i-th is the character U+0001 + i, so
   * that no text can be taken for a marker nor a marker for text. At most seven.
   */
  readonly markers: readonly string[];
  readonly counters: CounterTable | null;
  readonly start: ConstraintStart;
  /** JSON pointers of what is not enforced. */
  readonly relaxed: readonly string[];
}

/** Masks of one verify forward, made while it runs. */
export interface MaskRows {
  /**
   * Drafts before the first illegal one. A legal EOS counts and ends the draft. Known at once; masks need not be ready.
   */
  readonly kept: number;
  /** `ceil(vocabulary / 32)`. */
  readonly width: number;
  /**
   * Row-major `(kept + 1) × width`, bit `id & 31` of word `id >> 5`, 1 = allowed; row i is for what follows draft[0..i).
   * A row without a bit: nothing may follow there. The row behind an EOS is all ones. Waits for the engine. Owned by
   * the caller.
   * @throws ConstraintError
   */
  words(): Uint32Array;
}

/** What a row tells about its grammar when it ends. */
export interface ConstraintStats {
  readonly compileMs: number;
  /** The compiled grammar was there already. */
  readonly cached: boolean;
  /** Rows of logits that were masked. */
  readonly maskedRows: number;
  /** Drafts cut at an illegal token. */
  readonly cutDrafts: number;
  /** Waiting for masks, in ms. */
  readonly maskMs: number;
}

/** One row's state. Synchronous; any method may throw `ConstraintError`, which ends this row alone. */
export interface RowConstraint extends Disposable {
  /**
   * Masks along a draft that continues the committed text; row 0 is before any draft. Leaves the state where it was.
   * The result of the call before, of whichever row, is to be read (or given up) first.
   */
  masks(draft: readonly number[]): MaskRows;
  /** Ids that were committed, all legal; an EOS ends it. */
  commit(ids: readonly number[]): void;
  /** Ids that are likely to follow, since their text must; empty if there is a choice. A draft like any other. */
  forced(): readonly number[];
  /** An EOS was committed: nothing follows. */
  readonly ended: boolean;
  stats(): ConstraintStats;
}

/** A grammar that is compiled and pinned; give it back with `Symbol.dispose` once no row will be opened from it. */
export interface CompiledConstraint extends Disposable {
  readonly compileMs: number;
  readonly cached: boolean;
}

export type CompileOutcome =
  | { readonly compiled: CompiledConstraint; readonly error: null }
  | { readonly compiled: null; readonly error: ConstraintError };

/** Compiles beside the engine thread. Callbacks, not promises: a busy engine thread does not return to its event loop. */
export interface GrammarCompiler {
  /** `done` is called once, from `poll` or from the event loop; returns a function that gives the request up. */
  compile(spec: ConstraintSpec, done: (outcome: CompileOutcome) => void): () => void;
  /** Delivers what has been compiled. To be called between turns of a busy engine. */
  poll(): void;
  /**
   * A row at the grammar's beginning: bound from its first token on. When the grammar begins (`ConstraintSpec.start`) is
   * the caller's matter, see `decoding/after-reasoning.ts`.
   * @param limits.eosIds ids that may end the text; not empty
   */
  open(compiled: CompiledConstraint, limits: { eosIds: readonly number[]; maxNewTokens: number }): RowConstraint;
  /** Ends its threads; open rows fail from now on. */
  close(): void;
}

/** `invalid_request`: the grammar itself; `internal`: its engine. */
export class ConstraintError extends Error {
  override readonly name = "ConstraintError";
  constructor(
    readonly kind: "invalid_request" | "internal",
    message: string,
  ) {
    super(message);
  }
}
