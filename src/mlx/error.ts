/** The error of this layer: MLX's own message, with the operation and the shapes it was given. */
export class MlxError extends Error {
  override readonly name = "MlxError";
  readonly op: string;
  /** Shape and dtype of each array argument, e.g. "float32[2,3]". */
  readonly inputs: readonly string[];

  constructor(op: string, message: string, inputs: readonly string[] = []) {
    super(`${op}(${inputs.join(", ")}): ${message}`);
    this.op = op;
    this.inputs = inputs;
  }
}
