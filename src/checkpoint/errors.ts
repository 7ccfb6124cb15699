/**
 * The one error of the checkpoint room: a file on disk is not what a loader may use. It names the file, the tensor
 * where there is one, and the check that failed; the message says what is wrong and, where known, what to do.
 */

/** Which rule of the format was broken; stable names, for tests and for the caller's exit code. */
export type CheckName =
  | "file"
  | "header-length"
  | "header-json"
  | "metadata"
  | "entry"
  | "dtype"
  | "shape"
  | "offsets"
  | "coverage"
  | "tensor-name"
  | "index"
  | "set"
  | "triple"
  | "changed"
  | "config"
  | "quantization"
  | "remote-code"
  | "gguf"
  | "gguf-type"
  | "architecture"
  | "tokenizer"
  | "space";

export interface CheckpointErrorDetails {
  /** Path of the offending file (or folder). */
  readonly file: string;
  readonly tensor?: string | undefined;
  readonly check: CheckName;
  /** What is wrong and what to do, without the path: it is put in front. */
  readonly message: string;
}

/** A checkpoint file or folder that must not be loaded. */
export class CheckpointError extends Error {
  override readonly name = "CheckpointError";
  readonly file: string;
  readonly tensor: string | undefined;
  readonly check: CheckName;

  constructor(details: CheckpointErrorDetails) {
    const tensor = details.tensor === undefined ? "" : `tensor ${JSON.stringify(details.tensor)}: `;
    super(`${details.file}: ${tensor}${details.message}`);
    this.file = details.file;
    this.tensor = details.tensor;
    this.check = details.check;
  }
}
