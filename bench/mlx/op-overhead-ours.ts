/** One burst: additions of two scalars through `src/mlx/ops.ts`, in scopes as large as a small model's step. */
import { float32Array, keep, scope } from "../../src/mlx/array.ts";
import { add } from "../../src/mlx/ops.ts";
import { openTestMlx } from "../../test/support/native.ts";
import { answerBursts } from "../support/answer.ts";
import { timed } from "../support/clock.ts";
import { OPS_PER_BURST, OPS_PER_SCOPE } from "./op-overhead-size.ts";

openTestMlx();
const a = scope(() => keep(float32Array([1], [])));
const b = scope(() => keep(float32Array([2], [])));

function addMany(): void {
  for (let i = 0; i < OPS_PER_SCOPE; i++) add(a, b);
}

await answerBursts(() => ({
  ...timed(OPS_PER_BURST, () => {
    for (let done = 0; done < OPS_PER_BURST; done += OPS_PER_SCOPE) scope(addMany);
  }),
}));
