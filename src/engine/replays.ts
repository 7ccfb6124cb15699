/**
 * Texts that are being read again, one after the other and one forward a turn, between the steps of the rows: a check
 * delays requests by single forwards, never by a whole text.
 */
import { kvStates } from "../cache/state-factory.ts";
import { Replay } from "../decoding/replay.ts";
import { Sampler } from "../decoding/sampler.ts";
import type { ReadyModel } from "./load-model.ts";
import type { LoadSpec, ReplayRequest, WireError } from "./protocol.ts";
import type { Post } from "./scheduler.ts";
import { wireError } from "./wire-error.ts";

/** Prompt tokens of one forward: about as long as a request's first chunk. */
const CHUNK = 128;

export class Replays {
  private readonly waiting: ReplayRequest[] = [];
  private running: { readonly id: string; readonly replay: Replay } | null = null;

  constructor(
    private readonly ready: ReadyModel,
    private readonly spec: LoadSpec,
    private readonly post: Post,
  ) {}

  /** True when a turn has something to do. */
  get busy(): boolean {
    return this.running !== null || this.waiting.length > 0;
  }

  submit(request: ReplayRequest): void {
    const message = this.refusal(request);
    if (message === null) this.waiting.push(request);
    else this.post({ type: "failed", id: request.id, error: { kind: "invalid_request", message } });
  }

  private refusal({ promptIds, ids }: ReplayRequest): string | null {
    const { contextWindow } = this.ready.info;
    const { vocab, target } = this.ready;
    if (promptIds.length === 0) return "the prompt is empty";
    if (promptIds.length + ids.length > contextWindow) {
      return `the text is too long: ${promptIds.length + ids.length} tokens > ${contextWindow} maximum`;
    }
    const foreign = (size: number) => (id: number) => !(Number.isInteger(id) && id >= 0 && id < size);
    // A prompt may hold padding, a completion never does: its ids are places in laws, which the device does not check.
    const bad = Array.from(promptIds).find(foreign(target.model.vocabSize)) ?? ids.find(foreign(vocab));
    return bad === undefined ? null : `token id ${bad} is not in the vocabulary of ${vocab}`;
  }

  /** Gives a check up; unknown ids are ignored. */
  cancel(id: string): void {
    const at = this.waiting.findIndex((request) => request.id === id);
    if (at >= 0) this.waiting.splice(at, 1);
    else if (this.running?.id !== id) return;
    else this.endRunning();
    this.post({ type: "failed", id, error: { kind: "cancelled", message: "the check was given up" } });
  }

  /** One forward. To be called while `busy`. */
  turn(): void {
    const request = this.running === null ? this.waiting.shift() : undefined;
    const id = this.running?.id ?? request?.id;
    if (id === undefined) return;
    try {
      if (request !== undefined) this.running = { id, replay: this.begin(request) };
      const replay = this.running?.replay;
      if (replay === undefined) return;
      if (!replay.done) replay.advance();
      if (!replay.done) return;
      const { steps, dtype } = replay;
      this.endRunning();
      this.post({ type: "replayed", id, report: { steps, dtype } });
    } catch (error) {
      this.endRunning();
      this.post({ type: "failed", id, error: wireError(error) });
    }
  }

  private begin({ promptIds, ids, sampling }: ReplayRequest): Replay {
    const { target, vocab } = this.ready;
    const capacity = promptIds.length + ids.length;
    const states = target.model.newStates(kvStates(this.spec.kvBits, target.stateLayout), capacity);
    const sampler = new Sampler(sampling, vocab, promptIds);
    return new Replay({ model: target.model, states, sampler, vocab, chunk: CHUNK }, promptIds, ids);
  }

  private endRunning(): void {
    this.running?.replay.dispose();
    this.running = null;
  }

  /** Ends everything, running and waiting, with an error. */
  abort(error: WireError): void {
    const ids = [...(this.running === null ? [] : [this.running.id]), ...this.waiting.map(({ id }) => id)];
    this.endRunning();
    this.waiting.length = 0;
    for (const id of ids) this.post({ type: "failed", id, error });
  }
}
