/** SmolLM2 with the real grammar engine, and requests run to their ends as the engine thread runs them. */
import { vocabularySize } from "../../src/checkpoint/vocabulary.ts";
import type { GrammarCompiler } from "../../src/decoding/constraint.ts";
import type { Speculator } from "../../src/decoding/speculator.ts";
import { GrammarPool } from "../../src/engine/grammar/pool.ts";
import type { GenerateRequest } from "../../src/engine/protocol.ts";
import { TextModel } from "../../src/text/index.ts";
import { harness } from "../engine/tiny.ts";
import { type Pair, type Told, told } from "./pairs.ts";
import { loadSmollm2 } from "./smollm2.ts";

export class Structured {
  private constructor(
    readonly pair: Pair,
    readonly text: TextModel,
    readonly pool: GrammarPool,
    private readonly vocab: number,
  ) {}

  static async open(dir: string): Promise<Structured> {
    const text = await TextModel.load(dir);
    const pair = loadSmollm2(dir, 4);
    const vocab = Math.min(vocabularySize(dir) ?? pair.model.vocabSize, pair.model.vocabSize);
    return new Structured(pair, text, new GrammarPool({ dir, vocabSize: vocab }), vocab);
  }

  close(): void {
    this.pool.close();
    this.pair.dispose();
  }

  /** @param policy null: plain steps */
  async run(
    asked: readonly GenerateRequest[],
    policy: Speculator | null,
    maxBatch: number,
    grammars: GrammarCompiler = this.pool,
  ): Promise<Told[]> {
    let wake: () => void = () => undefined;
    const { pair, vocab } = this;
    const options = { vocab, maxBatch, grammars, wake: () => wake(), maxQueue: asked.length };
    const { scheduler, posted } = harness(pair, { ...options, ...(policy !== null && { speculator: policy }) });
    for (const each of asked) scheduler.submit(each);
    while (scheduler.busy || scheduler.queuedRows > 0) {
      if (scheduler.busy) scheduler.turn();
      else {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    }
    return asked.map(({ id }) => told(posted, id));
  }

  /** The text of a completion, without its end. */
  shown(ids: readonly number[]): string {
    const { tokenizer, eosIds } = this.text;
    const bytes = ids.filter((id) => !eosIds.includes(id)).map((id) => tokenizer.tokenBytes(id));
    return Buffer.concat(bytes).toString("utf8");
  }
}
