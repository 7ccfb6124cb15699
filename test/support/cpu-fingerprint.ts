/**
 * A program of its own, since the instruction set is chosen once per process: prints a hash of every logit that the named
 * folders' models compute on the fused backend, token by token, and fails when any cut of the prompt changes a bit.
 *
 *   bun test/support/cpu-fingerprint.ts FOLDER… with MLX_DSPARK_ISA and MLX_DSPARK_THREADS
 */
import { kvStates } from "../../src/cache/state-factory.ts";
import { int32Array, scope, toFloat32 } from "../../src/mlx/array.ts";
import { type LoadedTarget, loadTarget } from "../../src/models/load.ts";
import { StepBatch } from "../../src/nn/layer-state.ts";
import { chooseCompute } from "../../src/nn/select.ts";
import { openTestMlx } from "./native.ts";

const TOKENS = 16;

/** Logits of all tokens, fed `piece` at a time. */
function feed({ model, stateLayout }: LoadedTarget, ids: readonly number[], piece: number): Uint8Array {
  const states = model.newStates(kvStates(0, stateLayout), ids.length);
  const parts: Uint8Array[] = [];
  for (let start = 0; start < ids.length; start += piece) {
    const count = Math.min(piece, ids.length - start);
    parts.push(
      scope(() => {
        const { hidden } = model.forward(
          int32Array(ids.slice(start, start + count)),
          new StepBatch([{ states, count, offset: start }]),
        );
        return new Uint8Array(toFloat32(model.logits(hidden)).buffer);
      }),
    );
  }
  for (const state of states) state.dispose();
  return Buffer.concat(parts);
}

openTestMlx();
const hasher = new Bun.CryptoHasher("sha256");
const { compute, dtype } = chooseCompute({ MLX_DSPARK_CPU: "fused" });
for (const folder of process.argv.slice(2)) {
  const target = loadTarget(folder, compute, { dtype });
  const ids = Array.from({ length: TOKENS }, (_, i) => (11 + i * 7919) % Math.min(target.model.vocabSize, 250));
  const alone = feed(target, ids, 1);
  for (const piece of [3, 8, TOKENS]) {
    if (Buffer.compare(feed(target, ids, piece), alone) !== 0) {
      throw new Error(`${folder}: logits of ${piece} rows at once differ from one row at a time`);
    }
  }
  hasher.update(alone);
  target.model.dispose();
}
console.log(hasher.digest("hex"));
