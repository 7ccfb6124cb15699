/** A process of its own that resolves one model: `bun child.ts <name>`, settings by environment. Prints the result. */
import { resolveModel } from "../../src/hub/resolve.ts";

const found = await resolveModel(process.argv[2] ?? "", {
  offline: false,
  onNotice: (text) => console.error(text),
  tuning: {
    partBytes: Number(process.env.PART_BYTES),
    bytesPerConnection: 2 * Number(process.env.PART_BYTES),
    retryDelaysMs: [1, 2, 4, 8, 16],
    freeBytes: async () => 1e12,
  },
});
console.log(JSON.stringify(found));
