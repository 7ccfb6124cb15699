/**
 * Reads a committed text again, one token a forward, on states of its own: what plain decoding would have chosen at
 * every place, and how near the choice was (decoding.md §10). It shares nothing with the loop that wrote the text.
 */
import { dtypeOf, evaluate, firstInt, int32Array, type MlxArray, scope, toFloat32 } from "../mlx/array.ts";
import { slice, subtract, takeAlongAxis } from "../mlx/ops.ts";
import type { TargetModel } from "../models/target.ts";
import { type LayerState, StepBatch } from "../nn/layer-state.ts";
import type { Sampler } from "./sampler.ts";
import { evidenceOf, readEvidence, type TokenEvidence } from "./token-evidence.ts";
import type { LogitDtype } from "./verdict.ts";

/** What a width-1 forward says of one committed token. */
export interface ReplayStep extends TokenEvidence {
  /** The token that plain decoding chooses here. */
  readonly choice: number;
  /** Raw logit of the choice less that of the committed token; 0 when they are the same. */
  readonly deficit: number;
}

export interface ReplayParts {
  readonly model: TargetModel;
  /** Empty, with room for everything that is read; disposed with the replay. */
  readonly states: readonly LayerState[];
  /** As the text was chosen by; disposed with the replay. */
  readonly sampler: Sampler;
  /** Logits beyond it are padding. */
  readonly vocab: number;
  /** Tokens of the prompt in one forward. */
  readonly chunk: number;
}

export class Replay {
  readonly steps: ReplayStep[] = [];
  dtype: LogitDtype = "float32";
  private cached = 0;

  /** @param prompt at least one id */
  constructor(
    private readonly parts: ReplayParts,
    private readonly prompt: ArrayLike<number>,
    private readonly ids: ArrayLike<number>,
  ) {}

  get done(): boolean {
    return this.steps.length >= this.ids.length;
  }

  /**
   * One forward: a chunk of the prompt, or one committed token. Waits.
   * @throws MlxError
   */
  advance(): void {
    const { model, states, chunk, vocab } = this.parts;
    const fed = this.cached < this.prompt.length ? this.nextChunk(chunk) : [this.ids[this.steps.length - 1] ?? 0];
    scope(() => {
      const batch = new StepBatch([{ states, count: fed.length, offset: this.cached }]);
      const { hidden } = model.forward(int32Array(fed), batch);
      this.cached += fed.length;
      if (this.cached < this.prompt.length) evaluate(states.flatMap((state) => state.arrays()));
      else {
        const last = slice(hidden, [fed.length - 1, 0], [fed.length, model.hiddenSize]);
        this.judge(slice(model.logits(last), [0, 0], [1, vocab]));
      }
    });
  }

  private nextChunk(chunk: number): number[] {
    const end = Math.min(this.cached + chunk, this.prompt.length);
    return Array.from({ length: end - this.cached }, (_, i) => this.prompt[this.cached + i] ?? 0);
  }

  private judge(logits: MlxArray): void {
    const index = this.steps.length;
    const { sampler } = this.parts;
    const committed = int32Array([this.ids[index] ?? 0]);
    const choice = firstInt(sampler.accept(logits, int32Array([]), null, index).tokens);
    const [evidence = { rank: 0, gap: 0, top: 0 }] = readEvidence(evidenceOf(logits, committed));
    const at = (id: number) => takeAlongAxis(logits, int32Array([id], [1, 1]), -1);
    const deficit = toFloat32(subtract(at(choice), at(this.ids[index] ?? 0)))[0] ?? 0;
    this.steps.push({ ...evidence, choice, deficit });
    const dtype = dtypeOf(logits);
    if (dtype === "float16" || dtype === "bfloat16") this.dtype = dtype;
    sampler.committed([this.ids[index] ?? 0]);
  }

  dispose(): void {
    for (const state of this.parts.states) state.dispose();
    this.parts.sampler.dispose();
  }
}
