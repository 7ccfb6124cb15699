/**
 * The memory that the engine thread shares with one grammar worker, and the call through it: the engine writes a request,
 * rings, and waits for two answers: how much of the draft is legal, then the masks. Messages with text go through a port;
 * the bell tells of them, too, since the worker waits on it instead of an event loop. One call at a time.
 */

/** Rows of masks in one answer; longer drafts take several calls. */
export const ROWS_MAX = 64;
/** Ids in one request. */
const IDS_MAX = 16_384;
/** Ids in one answer. */
const FORCED_MAX = 512;

export const OP_MASKS = 1;
export const OP_FORCED = 2;

const BELL = 0;
const CALL = 1;
const ANSWERED = 2;
const DONE = 3;
const STATE = 4;
const COMPILING = 5;
const OP = 6;
const ROW = 7;
const COMMITS = 8;
const DRAFTS = 9;
const FROM = 10;
const COUNT = 11;
const HEADER = 16;

const READY = 1;
const LOST = 2;

export interface GrammarCall {
  readonly op: number;
  readonly row: number;
  /** Ids that were committed since the call before. */
  readonly commits: readonly number[];
  readonly draft: readonly number[];
  /** First row of masks that is wanted. */
  readonly from: number;
}

/** The other side does not answer, or its engine is gone. */
export class LostWorker extends Error {
  override readonly name = "LostWorker";
}

/** How long a wait lasts before the worker's state is looked at again, in ms. */
const SLICE_MS = 20;

export class SharedBlock {
  private readonly header: Int32Array;
  private readonly ids: Int32Array;
  private readonly out: Int32Array;
  private readonly maskWords: Uint32Array;

  /** @param width words of a mask */
  constructor(
    readonly memory: SharedArrayBuffer,
    private readonly width: number,
  ) {
    const ints = (from: number, count: number) => new Int32Array(memory, from * 4, count);
    this.header = ints(0, HEADER);
    this.ids = ints(HEADER, IDS_MAX);
    this.out = ints(HEADER + IDS_MAX, FORCED_MAX);
    this.maskWords = new Uint32Array(memory, (HEADER + IDS_MAX + FORCED_MAX) * 4, ROWS_MAX * width);
  }

  static allocate(width: number): SharedBlock {
    return new SharedBlock(new SharedArrayBuffer((HEADER + IDS_MAX + FORCED_MAX + ROWS_MAX * width) * 4), width);
  }

  // The engine's side.

  /** A message lies in the port. */
  ring(): void {
    Atomics.add(this.header, BELL, 1);
    Atomics.notify(this.header, BELL);
  }

  get lost(): boolean {
    return Atomics.load(this.header, STATE) === LOST;
  }

  /** Puts a request; `answered` and `done` wait for its two answers. */
  post({ op, row, commits, draft, from }: GrammarCall): void {
    if (commits.length + draft.length > IDS_MAX) throw new RangeError(`a call carries at most ${IDS_MAX} ids`);
    const { header } = this;
    header[OP] = op;
    header[ROW] = row;
    header[COMMITS] = commits.length;
    header[DRAFTS] = draft.length;
    header[FROM] = from;
    this.ids.set(commits);
    this.ids.set(draft, commits.length);
    Atomics.add(header, CALL, 1);
    this.ring();
  }

  /** The first answer: legal drafts, or ids in `forced`. @throws LostWorker */
  answered(patienceMs: number): number {
    this.await(ANSWERED, patienceMs);
    return Atomics.load(this.header, COUNT);
  }

  /** @throws LostWorker */
  done(patienceMs: number): void {
    this.await(DONE, patienceMs);
  }

  forced(count: number): number[] {
    return [...this.out.subarray(0, count)];
  }

  /** A copy of the first rows. */
  masks(rows: number): Uint32Array {
    return this.maskWords.slice(0, rows * this.width);
  }

  private await(stage: number, patienceMs: number): void {
    const { header } = this;
    const wanted = Atomics.load(header, CALL);
    let until = performance.now() + patienceMs;
    for (let seen = Atomics.load(header, stage); seen !== wanted; seen = Atomics.load(header, stage)) {
      if (this.lost) throw new LostWorker("the grammar engine failed");
      // A compile has a deadline of its own, which the client keeps.
      if (Atomics.load(header, COMPILING) !== 0) until = Math.max(until, performance.now() + patienceMs / 2);
      if (performance.now() > until) throw new LostWorker("the grammar engine does not answer");
      Atomics.wait(header, stage, seen, SLICE_MS);
    }
  }

  // The worker's side.

  /** Waits for the bell to ring after `seen`; returns what it shows now. */
  waitForBell(seen: number): number {
    Atomics.wait(this.header, BELL, seen);
    return Atomics.load(this.header, BELL);
  }

  markReady(): void {
    Atomics.store(this.header, STATE, READY);
  }

  markLost(): void {
    Atomics.store(this.header, STATE, LOST);
    Atomics.notify(this.header, ANSWERED);
    Atomics.notify(this.header, DONE);
  }

  markCompiling(compiling: boolean): void {
    Atomics.store(this.header, COMPILING, compiling ? 1 : 0);
  }

  /** The request that waits for an answer; null: none. */
  pendingCall(): GrammarCall | null {
    const { header } = this;
    if (Atomics.load(header, CALL) === Atomics.load(header, DONE)) return null;
    const at = (index: number) => Atomics.load(header, index);
    const commits = at(COMMITS);
    return {
      op: at(OP),
      row: at(ROW),
      commits: [...this.ids.subarray(0, commits)],
      draft: [...this.ids.subarray(commits, commits + at(DRAFTS))],
      from: at(FROM),
    };
  }

  answer(count: number): void {
    Atomics.store(this.header, COUNT, count);
    this.reach(ANSWERED);
  }

  finish(): void {
    this.reach(DONE);
  }

  writeForced(ids: readonly number[]): number {
    const kept = ids.slice(0, FORCED_MAX);
    this.out.set(kept);
    return kept.length;
  }

  /** The i-th row of the answer, to be filled. */
  maskRow(index: number): Uint32Array {
    return this.maskWords.subarray(index * this.width, (index + 1) * this.width);
  }

  private reach(stage: number): void {
    Atomics.store(this.header, stage, Atomics.load(this.header, CALL));
    Atomics.notify(this.header, stage);
  }
}
