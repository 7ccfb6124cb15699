/** What passes through the port between the engine thread and a grammar worker; masks pass through `SharedBlock`. */
import type { MessagePort } from "node:worker_threads";
import type { ConstraintSpec } from "../../decoding/constraint.ts";

export interface GrammarWorkerSetup {
  readonly port: MessagePort;
  readonly memory: SharedArrayBuffer;
  /** Folder of the model's tokenizer. */
  readonly dir: string;
  /** Rows of the model's head that are tokens. */
  readonly vocabSize: number;
}

/** What the grammar engine needs of a spec. */
export type GrammarSource = Pick<ConstraintSpec, "ebnf" | "markers" | "counters">;

export interface RowOpening {
  readonly row: number;
  /** Key of its grammar. */
  readonly key: string;
  readonly eosIds: readonly number[];
  /** Ids that are committed already. */
  readonly accepted: readonly number[];
}

export type ToGrammarWorker =
  | { readonly type: "compile"; readonly key: string; readonly source: GrammarSource }
  | { readonly type: "open"; readonly opening: RowOpening }
  /** After a restart: what the worker before had. Done before any call is answered. */
  | {
      readonly type: "restore";
      readonly grammars: readonly { readonly key: string; readonly source: GrammarSource }[];
      readonly rows: readonly RowOpening[];
    }
  | { readonly type: "close"; readonly row: number }
  | { readonly type: "drop"; readonly key: string }
  | { readonly type: "stop" };

export type FromGrammarWorker =
  | { readonly type: "begun"; readonly key: string }
  | { readonly type: "compiled"; readonly key: string; readonly ms: number }
  /** The grammar was refused; the WASM instance is lost. */
  | { readonly type: "refused"; readonly key: string; readonly reason: string }
  | { readonly type: "lost"; readonly reason: string };
