/**
 * The engine's loop, one turn at a time: admit, plan, schedule the next step, then settle the one in flight, commit and
 * report (batching.md B3). Rows join and leave only between steps; a finished row frees its place for the very next plan.
 * Prefill and decode never share a forward, so that a row's numbers do not depend on its neighbours.
 */
import { kvStates } from "../cache/state-factory.ts";
import type { PlannedDraft, PlannedRound } from "../decoding/draft-blocks.ts";
import { type RoundResult, runRound } from "../decoding/round.ts";
import { Row } from "../decoding/row.ts";
import type { RowDrafting } from "../decoding/row-drafting.ts";
import { Sampler } from "../decoding/sampler.ts";
import type { Speculator } from "../decoding/speculator.ts";
import { type InFlightStep, type PlannedRow, type SettledToken, scheduleStep } from "../decoding/step.ts";
import type { Drafter } from "../drafters/drafter.ts";
import type { ReadyModel } from "./load-model.ts";
import { Outbox } from "./outbox.ts";
import { Policies } from "./policies.ts";
import { PrefillPolicy } from "./prefill-policy.ts";
import type {
  FinishReason,
  FromEngine,
  GenerateRequest,
  LoadSpec,
  RoundInfo,
  TokenEvent,
  WireError,
} from "./protocol.ts";
import { ActiveRequest } from "./request.ts";
import { RequestGrammars } from "./request-grammars.ts";
import { wireError } from "./wire-error.ts";

const PLAIN: PlannedDraft = { source: "plain" };

export type Post = (message: FromEngine) => void;

interface Running {
  readonly step: InFlightStep;
  /** Failures in a row when the step was scheduled: only a step begun after the last one shows that all is well. */
  readonly failures: number;
}

export class Scheduler {
  private readonly queue: ActiveRequest[] = [];
  private readonly active: ActiveRequest[] = [];
  private readonly byRow = new Map<Row, ActiveRequest>();
  private readonly chunks = new PrefillPolicy();
  private readonly policies: Policies;
  private readonly outbox: Outbox;
  private readonly grammars: RequestGrammars;
  private inFlight: Running | null = null;
  private prefillTurn = true;
  private failures = 0;
  steps = 0;
  requestsDone = 0;

  constructor(
    private readonly ready: ReadyModel,
    private readonly spec: LoadSpec,
    post: Post,
    /** Called when there is something to do again after `busy` was false. */
    wake: () => void = () => undefined,
  ) {
    this.outbox = new Outbox(post);
    this.policies = new Policies(ready.speculator);
    this.grammars = new RequestGrammars(ready.grammars, ready.vocab, {
      ready: wake,
      failed: (entry, error) => this.failWaiting(entry, error),
    });
  }

  get activeRows(): number {
    return this.active.length;
  }

  get queuedRows(): number {
    return this.queue.length;
  }

  /** True when a turn has something to do. Requests whose grammar is being compiled wait outside of turns. */
  get busy(): boolean {
    const { active, queue, inFlight } = this;
    return active.length > 0 || inFlight !== null || queue.some((entry) => entry.cancelled || entry.compiling === null);
  }

  /** Takes a request into the queue, or refuses it at once. */
  submit(request: GenerateRequest): void {
    const refusal = this.refusal(request);
    if (refusal !== null) {
      this.outbox.post({ type: "failed", id: request.id, error: refusal });
      return;
    }
    const entry = new ActiveRequest(request, this.policies.of(request.speculation));
    if (request.priority === 0) {
      const firstBackground = this.queue.findIndex((waiting) => waiting.request.priority === 1);
      this.queue.splice(firstBackground < 0 ? this.queue.length : firstBackground, 0, entry);
    } else this.queue.push(entry);
    this.grammars.prepare(entry);
  }

  private refusal(request: GenerateRequest): WireError | null {
    const { id, promptIds, maxNewTokens, speculation, constraint, eosIds } = request;
    const { info } = this.ready;
    const invalid = (message: string): WireError => ({ kind: "invalid_request", message });
    if ([...this.queue, ...this.active].some((entry) => entry.id === id)) return invalid(`request ${id} is running`);
    if (promptIds.length === 0) return invalid("the prompt is empty");
    if (!(maxNewTokens >= 1)) return invalid("at least one token must be asked for");
    const window = info.contextWindow;
    if (promptIds.length >= window) {
      return invalid(`prompt is too long: ${promptIds.length} tokens > ${window - 1} maximum`);
    }
    const size = this.ready.target.model.vocabSize;
    const bad = promptIds.find((id: number) => !(Number.isInteger(id) && id >= 0 && id < size));
    if (bad !== undefined) return invalid(`token id ${bad} is not in the vocabulary of ${size}`);
    // A draft of half a token would fail the round of every row beside it.
    for (const name of ["maxDraft", "lookupLongDraft"] as const) {
      const wish = speculation?.[name] ?? 0;
      if (wish !== "auto" && !Number.isInteger(wish)) return invalid(`${name} must be an integer, got ${wish}`);
    }
    if (constraint && eosIds.length === 0) return invalid("a grammar needs an end: do not ignore the end of sequence");
    if (this.queue.length >= this.spec.maxQueue) {
      return { kind: "queue_full", message: `the queue is full (${this.spec.maxQueue} requests are waiting)` };
    }
    return null;
  }

  /** Marks a request as given up; honoured at the next turn. Unknown ids are ignored: it may just have ended. */
  cancel(id: string): void {
    for (const entry of [...this.queue, ...this.active]) if (entry.id === id) entry.cancelled = true;
  }

  /** One turn. To be called while `busy`. */
  turn(): void {
    this.grammars.poll(this.queue);
    this.dropCancelled();
    this.admit();
    const plan = this.plan();
    if (plan[0]?.kind === "prefill") {
      this.settleInFlight();
      // The step in flight may have failed, and taken this row with it.
      if (plan[0].row.live) this.prefill(plan);
      return;
    }
    let drafts = this.drafts(plan.map(({ row }) => row));
    // A draft continues from the newest token: nothing may be in flight. What was settled for it changes the plan.
    if (this.inFlight !== null && (!mayRunAhead(drafts) || this.waits(drafts))) {
      this.settleAndHold();
      drafts = this.drafts(this.decoding());
    }
    if (!mayRunAhead(drafts)) {
      this.round(drafts);
      return;
    }
    const alive = drafts.flatMap(({ row, draft }): PlannedRow[] =>
      row.live ? [{ row, kind: "decode", count: 1, watched: draft.source === "plain" && draft.watched === true }] : [],
    );
    const next = alive.length > 0 ? this.schedule(alive) : null;
    this.settleInFlight();
    this.inFlight = next;
  }

  /** Whether a row's next token may begin a draft, which a step ahead of it would delay. */
  private waits(plan: readonly PlannedRound[]): boolean {
    return plan.some(({ row }) => this.byRow.get(row)?.policy?.waits(row));
  }

  /** What each row should do next. Policies count the drafts that they refuse: not to be asked without need. */
  private drafts(rows: readonly Row[]): PlannedRound[] {
    return rows.flatMap((row): PlannedRound[] => {
      try {
        return [{ row, draft: this.byRow.get(row)?.policy?.plan(row) ?? PLAIN }];
      } catch (error) {
        this.failRow(row, error);
        return [];
      }
    });
  }

  private decoding(): Row[] {
    return this.active.flatMap(({ row }) => (row === null || row.inPrefill || row.exhausted ? [] : [row]));
  }

  /** One round of all rows that decode; each drafts in its own way. */
  private round(plan: readonly PlannedRound[]): void {
    if (plan.length === 0) return;
    const rows = plan.map(({ row }) => row);
    const drafter = this.drafterOf(rows);
    let result: RoundResult;
    try {
      result = runRound(this.ready.target.model, plan, {
        drafter,
        vocab: this.ready.vocab,
        onStarted: () => this.outbox.flush(),
      });
    } catch (error) {
      this.failRows(rows, error);
      return;
    }
    this.steps++;
    this.failures = 0;
    const { settled: rounds, failed } = result;
    for (const { row, error } of failed) this.failRow(row, error);
    const batch: TokenEvent[] = [];
    for (const { row, ids, logprobs, source, drafted, accepted } of rounds) {
      const entry = this.byRow.get(row);
      if (entry === undefined) continue;
      entry.forwards++;
      batch.push({ id: entry.id, ids, logprobs, round: entry.round(source, drafted, accepted) });
    }
    this.byPolicy(rounds, (policy, own) => policy.settledRounds(own));
    if (batch.length > 0) this.outbox.hold({ type: "tokens", batch });
    this.endFinished(rows);
  }

  /** The loaded drafter when one of the rows keeps a context for it. */
  private drafterOf(rows: readonly Row[]): Drafter | null {
    return rows.some(({ drafting }) => drafting !== null && drafting.session !== null)
      ? (this.ready.speculator?.drafter ?? null)
      : null;
  }

  /** Tells every policy of its rows. A step that several policies shared tells none of them what their rows cost. */
  private byPolicy<T extends { readonly row: Row }>(
    all: readonly T[],
    tell: (policy: Speculator, own: readonly T[]) => void,
  ): void {
    const groups = Map.groupBy(all, ({ row }) => this.byRow.get(row)?.policy ?? null);
    for (const [policy, own] of groups) {
      if (policy === null) continue;
      if (groups.size > 1) policy.interrupted();
      tell(policy, own);
    }
  }

  private dropCancelled(): void {
    for (const entry of this.queue.filter((waiting) => waiting.cancelled)) {
      this.queue.splice(this.queue.indexOf(entry), 1);
      this.end(entry, "cancelled");
    }
    for (const entry of this.active.filter((running) => running.cancelled)) this.end(entry, "cancelled");
  }

  private admit(): void {
    while (this.active.length < this.spec.maxBatch) {
      const at = this.queue.findIndex(({ compiling }) => compiling === null);
      const [entry] = at < 0 ? [] : this.queue.splice(at, 1);
      if (entry === undefined) return;
      try {
        entry.start(this.newRow(entry));
        entry.dropGrammar();
      } catch (error) {
        this.fail(entry, error);
        continue;
      }
      this.active.push(entry);
      if (entry.row !== null) this.byRow.set(entry.row, entry);
    }
  }

  private newRow(entry: ActiveRequest): Row {
    const { request, policy } = entry;
    const { target, vocab, info } = this.ready;
    const room = info.contextWindow - request.promptIds.length;
    const maxNew = Math.min(request.maxNewTokens, room);
    // The one step that is scheduled beyond the end of a row may still append a token.
    const capacity = request.promptIds.length + maxNew + 1;
    const limits = { maxNew, eos: new Set(request.eosIds), topLogprobs: request.topLogprobs };
    const states = target.model.newStates(kvStates(this.spec.kvBits, target.stateLayout), capacity);
    let sampler: Sampler | null = null;
    let drafting: RowDrafting | null = null;
    try {
      sampler = new Sampler(request.sampling, vocab, request.promptIds);
      drafting = policy?.newRow(request.promptIds, capacity) ?? null;
      const constraint = this.grammars.open(entry, maxNew);
      return new Row(request.promptIds, states, sampler, limits, drafting, constraint);
    } catch (error) {
      for (const state of states) state.dispose();
      sampler?.dispose();
      drafting?.session?.close();
      throw error;
    }
  }

  /** Decode rows together, or one chunk of the oldest prompt; the two take turns. */
  private plan(): PlannedRow[] {
    const reading = this.active.find(({ row }) => row?.inPrefill)?.row ?? null;
    const decoding = this.decoding();
    const prefillNow = reading !== null && (decoding.length === 0 || this.prefillTurn);
    this.prefillTurn = !prefillNow;
    if (prefillNow) {
      const remaining = reading.promptLength - reading.cached;
      return [{ row: reading, kind: "prefill", count: this.chunks.chunk(remaining, decoding.length > 0) }];
    }
    return decoding.map((row) => ({ row, kind: "decode", count: 1 }));
  }

  /** A chunk is settled at once: its time is measured, and the next chunk needs nothing of it. */
  private prefill(plan: readonly PlannedRow[]): void {
    const started = performance.now();
    const running = this.schedule(plan);
    const tokens = running === null ? null : this.settle(running);
    this.interrupted();
    if (tokens === null) return;
    for (const { row, count } of plan) {
      this.chunks.measured(count, performance.now() - started);
      const entry = this.byRow.get(row);
      if (entry === undefined) continue;
      this.outbox.post({ type: "prefill", id: entry.id, processed: row.cached, total: row.promptLength });
    }
    this.report(tokens);
    this.outbox.flush();
  }

  /** Something else is computed between two steps: the time between them says nothing of them. */
  interrupted(): void {
    this.outbox.flush();
    for (const { policy } of this.active) policy?.interrupted();
  }

  /** null: the step failed, and its rows with it. */
  private schedule(plan: readonly PlannedRow[]): Running | null {
    try {
      const taps = this.drafterOf(plan.map(({ row }) => row))?.taps ?? [];
      const step = scheduleStep(this.ready.target.model, plan, this.ready.vocab, taps);
      this.steps++;
      this.outbox.flush();
      for (const { row, error } of step.failed) this.failRow(row, error);
      return { step, failures: this.failures };
    } catch (error) {
      this.failStep(plan, error);
      return null;
    }
  }

  /** What it gave is told at once: meanwhile the device runs the next step, if one is scheduled. */
  private settleInFlight(): void {
    this.settleAndHold();
    this.outbox.flush();
  }

  /** The same, told when the device has its next work. */
  private settleAndHold(): void {
    const running = this.inFlight;
    this.inFlight = null;
    const tokens = running === null ? null : this.settle(running);
    if (tokens !== null) this.report(tokens);
  }

  /** null: the step failed, and its rows with it. */
  private settle({ step, failures }: Running): SettledToken[] | null {
    try {
      const tokens = step.settle();
      if (failures === this.failures) this.failures = 0;
      for (const { row, error } of step.failed) this.failRow(row, error);
      for (const { row } of step.plan) {
        const entry = this.byRow.get(row);
        if (entry !== undefined) entry.forwards++;
      }
      return tokens;
    } catch (error) {
      step.discard();
      this.failStep(step.plan, error);
      return null;
    }
  }

  private report(tokens: readonly SettledToken[]): void {
    const batch: TokenEvent[] = [];
    const later: SettledToken[] = [];
    for (const token of tokens) {
      const entry = this.byRow.get(token.row);
      if (entry === undefined) continue;
      let round: RoundInfo | null = null;
      if (token.row.committed > 1) {
        round = entry.round("plain", 0, 0);
        later.push(token);
      } else {
        entry.firstToken();
        token.row.drafting?.extend([token.id]);
      }
      const logprobs = token.logprob === null ? null : [token.logprob];
      batch.push({ id: entry.id, ids: [token.id], logprobs, round });
    }
    this.byPolicy(later, (policy, own) => policy.settledPlain(own));
    if (batch.length > 0) this.outbox.hold({ type: "tokens", batch });
    this.endFinished(tokens.map(({ row }) => row));
  }

  /** Ends the rows whose newest token is an EOS or their last. */
  private endFinished(rows: readonly Row[]): void {
    for (const row of rows) {
      const entry = this.byRow.get(row);
      if (entry === undefined) continue;
      const last = row.tokens.slice(row.tokens.length - 1, row.tokens.length)[0] ?? -1;
      if (row.limits.eos.has(last)) this.end(entry, "stop");
      else if (row.committed >= row.limits.maxNew) this.end(entry, "length");
    }
  }

  private end(entry: ActiveRequest, reason: FinishReason): void {
    const stats = entry.stats();
    this.release(entry);
    this.outbox.post({ type: "done", id: entry.id, reason, stats });
  }

  private fail(entry: ActiveRequest, error: unknown): void {
    this.release(entry);
    this.outbox.post({ type: "failed", id: entry.id, error: wireError(error) });
  }

  /** Fails a request that is still in the queue. */
  private failWaiting(entry: ActiveRequest, error: unknown): void {
    const at = this.queue.indexOf(entry);
    if (at < 0) return;
    this.queue.splice(at, 1);
    this.fail(entry, error);
  }

  private release(entry: ActiveRequest): void {
    entry.dropGrammar();
    const at = this.active.indexOf(entry);
    if (at >= 0) this.active.splice(at, 1);
    if (entry.row !== null) {
      this.byRow.delete(entry.row);
      entry.row.dispose();
    }
    this.requestsDone++;
  }

  private failRow(row: Row, error: unknown): void {
    const entry = this.byRow.get(row);
    if (entry !== undefined) this.fail(entry, error);
  }

  /** A failed forward ends its rows and no others; a second one in a row ends all: the device itself is in doubt. */
  private failStep(plan: readonly PlannedRow[], error: unknown): void {
    this.failRows(
      plan.map(({ row }) => row),
      error,
    );
  }

  private failRows(rows: readonly Row[], error: unknown): void {
    const alive = rows.flatMap((row) => this.byRow.get(row) ?? []);
    // Rows that failed or ended before say nothing new.
    if (alive.length === 0) return;
    this.failures++;
    for (const entry of this.failures > 1 ? [...this.active] : alive) this.fail(entry, error);
  }

  /** Ends everything, running and waiting, with an error. */
  abort(error: WireError): void {
    this.settleInFlight();
    for (const entry of [...this.active, ...this.queue.splice(0)]) {
      this.release(entry);
      this.outbox.post({ type: "failed", id: entry.id, error });
    }
  }

  /** Refuses what waits; what runs may end. */
  refuseWaiting(error: WireError): void {
    for (const entry of this.queue.splice(0)) {
      entry.dropGrammar();
      this.outbox.post({ type: "failed", id: entry.id, error });
    }
  }
}

/** The mask behind a token needs that token: a row with a grammar takes no step ahead of itself. */
function mayRunAhead(plan: readonly PlannedRound[]): boolean {
  return plan.every(({ row, draft }) => draft.source === "plain" && row.constraint === null);
}
