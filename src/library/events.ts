/** What a generation tells while it runs and when it has ended (library-api.md §3). */

export type Mode = "dspark" | "dflash" | "lookup" | "baseline";

export interface LogprobEntry {
  readonly tokenId: number;
  readonly token: string;
  /** True bytes, also of half a character. */
  readonly bytes: Uint8Array;
  /** Natural logarithm, of the raw logits. */
  readonly logprob: number;
  /** Most likely first. */
  readonly top: readonly { readonly tokenId: number; readonly logprob: number }[];
}

/** New kinds may come: ignore what you do not know. */
export type GenerationEvent =
  | { readonly type: "start"; readonly promptTokens: number; readonly queueSeconds: number }
  | { readonly type: "prefill"; readonly processed: number; readonly total: number }
  /** The ids are those whose text it completes. */
  | { readonly type: "text"; readonly text: string; readonly tokenIds: readonly number[] }
  | { readonly type: "logprobs"; readonly entries: readonly LogprobEntry[] }
  /** One verify round or plain step; the first token belongs to none. */
  | {
      readonly type: "round";
      readonly index: number;
      readonly source: "drafter" | "lookup" | "forced" | "plain";
      readonly drafted: number;
      readonly accepted: number;
      readonly committed: number;
      readonly cap: number | null;
      readonly ms: number;
    }
  | { readonly type: "end"; readonly result: GenerationResult };

export interface GenerationStats {
  readonly mode: Mode;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly queueSeconds: number;
  readonly prefillSeconds: number;
  readonly decodeSeconds: number;
  readonly ttftSeconds: number;
  /** Completion tokens over prefill and decode, and over decode alone. */
  readonly tokensPerSecond: number;
  readonly decodeTokensPerSecond: number;
  readonly rounds: number;
  readonly targetForwards: number;
  /** Accepted drafts of each round and one more. */
  readonly acceptLengths: readonly number[];
  /** 1 is no gain. */
  readonly meanAcceptLength: number;
  readonly drafted: number;
  readonly accepted: number;
  readonly lookupRounds: number;
  /** Plain steps taken because drafting did not pay. */
  readonly parkedRounds: number;
  /** Draft cap in force at the end; null: nothing is drafted. */
  readonly cap: number | null;
  /** Of the draws; as asked for, else the one that was drawn. */
  readonly seed: bigint;
  /** Pace of the last 16 rounds over that of the first 16; null below 32 rounds. */
  readonly decayRatio: number | null;
  /** Of `verifyLossless`: tokens that plain decoding chooses, too; null: not asked for. */
  readonly lossless: null | {
    readonly tokens: number;
    readonly argmaxEqual: number;
    readonly maxGapAtMismatch: number;
  };
}

export interface GenerationResult {
  readonly text: string;
  /** The EOS and the token that completed a stop string included. */
  readonly tokenIds: Int32Array;
  readonly finishReason: "stop" | "length" | "cancelled";
  readonly stopString: string | null;
  readonly logprobs: readonly LogprobEntry[] | null;
  readonly stats: GenerationStats;
}
