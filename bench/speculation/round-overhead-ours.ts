/**
 * One burst: a request on a golden pair by the engine's own scheduler, with its drafter at a fixed cap; times by round.
 * Usage: round-overhead-ours.ts <target folder> <drafter folder> <tokens> <cap>
 */
import { loadDrafter } from "../../src/drafters/load.ts";
import { loadTarget } from "../../src/models/load.ts";
import { chooseCompute } from "../../src/nn/select.ts";
import { request } from "../../test/engine/tiny.ts";
import { openTestMlx } from "../../test/support/native.ts";
import { runAll, speculator } from "../../test/support/pairs.ts";
import { answerBursts } from "../support/answer.ts";
import { timed } from "../support/clock.ts";

const [folder = "", drafterFolder = "", tokens = "400", cap = "3"] = process.argv.slice(2);
openTestMlx();
const { compute, dtype } = chooseCompute(process.env);
const { model } = loadTarget(folder, compute, { dtype });
const drafter = loadDrafter(drafterFolder, model, { compute, dtype, bits: 0 });
const pair = { model, layout: compute.stateLayout, dispose: () => model.dispose() };
const promptIds = Array.from({ length: 8 }, (_, i) => (7 * i + 3) % 200);

await answerBursts(() => {
  let rounds = 1;
  let checksum = 0;
  const times = timed(1, () => {
    const asked = [request({ promptIds, maxNewTokens: Number(tokens) })];
    const [row] = runAll(pair, asked, { maxBatch: 1, speculator: speculator({ drafter, cap: Number(cap) }) });
    if (row === undefined || row.stats === null) throw new Error("the request gave no result");
    rounds = row.stats.acceptLengths.length;
    checksum = row.ids.reduce((sum, id, i) => sum + id * i, 0);
  });
  const { wall_ns, thread_ns, process_ns } = times;
  return { wall_ns: wall_ns / rounds, thread_ns: thread_ns / rounds, process_ns: process_ns / rounds, checksum };
});
