/** A process of its own that saves entries one after another: argv is folder, name, count. */
import { CalibrationStore } from "../../src/decoding/calibration-store.ts";

const [, , folder = "", name = "", count = "0"] = process.argv;
const store = new CalibrationStore(folder);
for (let i = 0; i < Number(count); i++) {
  const entry = { verify: { 1: i }, drafter: 1, overhead: 0, measured_at: "", iters: 8, spread: {} };
  if (!store.save(`${name}-${i}`, entry)) process.exit(1);
}
