/**
 * The grammars of requests: compiled while the request waits in the queue, opened with its row. Running rows wait for
 * neither; a request that leaves gives back what it holds (`ActiveRequest.dropGrammar`).
 */
import { startingAt } from "../decoding/after-reasoning.ts";
import { ConstraintError, type GrammarCompiler, type RowConstraint } from "../decoding/constraint.ts";
import type { ActiveRequest } from "./request.ts";

/** What becomes of a request that waits for its grammar; called at once, from `poll` or from the event loop. */
export interface GrammarOutcomes {
  ready(entry: ActiveRequest): void;
  failed(entry: ActiveRequest, error: ConstraintError): void;
}

export class RequestGrammars {
  constructor(
    private readonly compiler: GrammarCompiler | null,
    /** Tokens that logits are for. */
    private readonly vocab: number,
    private readonly outcomes: GrammarOutcomes,
  ) {}

  /** Begins what the request needs before it can become a row; nothing for free text. */
  prepare(entry: ActiveRequest): void {
    const { constraint } = entry.request;
    if (!constraint) return;
    if (this.compiler === null) {
      this.outcomes.failed(entry, new ConstraintError("invalid_request", "this model cannot follow a grammar"));
      return;
    }
    let known = false;
    const giveUp = this.compiler.compile(constraint, ({ compiled, error }) => {
      known = true;
      entry.compiling = null;
      entry.compiled = compiled;
      if (error === null) this.outcomes.ready(entry);
      else this.outcomes.failed(entry, error);
    });
    // What was compiled before is told at once.
    if (!known) entry.compiling = giveUp;
  }

  /** To be called between turns of a busy engine. */
  poll(waiting: readonly ActiveRequest[]): void {
    if (waiting.some(({ compiling }) => compiling !== null)) this.compiler?.poll();
  }

  /** The row's grammar at its beginning; null: free text. @throws ConstraintError */
  open({ request, compiled }: ActiveRequest, maxNewTokens: number): RowConstraint | null {
    const { constraint, eosIds } = request;
    if (!constraint || compiled === null || this.compiler === null) return null;
    const limits = { eosIds, maxNewTokens, vocab: this.vocab };
    return startingAt(constraint.start, this.compiler.open(compiled, limits), limits);
  }
}
