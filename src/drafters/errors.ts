/** The error of the drafter room: a checkpoint that is not a drafter that we run, or not one for this target. */

/** Stable names of the refusals, for tests and for the caller's exit code. */
export type DrafterRefusal =
  | "algorithm"
  | "eagle"
  | "medusa"
  | "mtp"
  | "embedded"
  | "hybrid"
  | "dfly"
  | "selector"
  | "missing-keys"
  | "family"
  | "vocabulary-map"
  | "tensors"
  | "context-width"
  | "vocabulary"
  | "taps"
  | "log-snr"
  | "gguf"
  | "nvfp4"
  | "mode";

export class DrafterError extends Error {
  override readonly name = "DrafterError";

  /** @param source folder or file of the drafter; put in front of the message */
  constructor(
    readonly source: string,
    readonly reason: DrafterRefusal,
    message: string,
  ) {
    super(`${source}: ${message}`);
  }
}
