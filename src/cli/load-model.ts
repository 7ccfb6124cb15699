/** Loads a model on the engine and its text side here, with progress on stderr. */
import { type EngineClient, EngineError } from "../engine/client.ts";
import type { LoadSpec, ModelInfo } from "../engine/protocol.ts";
import type { TextSource } from "../server/generation/text.ts";
import { CliError } from "./errors.ts";
import { type CliIo, say } from "./io.ts";
import { ProgressLine } from "./progress.ts";

export interface LoadedModel {
  readonly model: ModelInfo;
  readonly text: TextSource;
}

/** Rejects with `CliError` (exit 1) that says what could not be loaded and why. */
export async function loadModel(engine: EngineClient, spec: LoadSpec, io: CliIo): Promise<LoadedModel> {
  const progress = new ProgressLine(io.stderr);
  try {
    const model = await engine.load(spec, (step) => progress.update(step));
    const text = await io.loadText(model.dir);
    progress.clear();
    for (const note of [...model.notes, ...text.warnings]) say(io, `note: ${note}`);
    return { model, text };
  } catch (error) {
    progress.clear();
    const reason = error instanceof Error ? error.message : String(error);
    const known = error instanceof EngineError ? reason : `cannot read the model's text files: ${reason}`;
    throw new CliError(`could not load ${spec.model}: ${known}`, 1, { cause: error });
  }
}
