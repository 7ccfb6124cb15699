/**
 * Soak: 1,000 requests of 8 clients, a fifth of them cut, against a served tiny model. Live arrays must be flat, resident
 * memory within 2 % between request 200 and the last, and the process must live. Run by `make soak`.
 *
 * Usage: bun test/soak/requests.ts [--requests N] [--sources]   (--sources: not the executable)
 */
import { parseArgs } from "node:util";
import { fromSources, newestProgram } from "./served-process.ts";
import { residentGrowth, soak } from "./soak.ts";

const PART = 200;
const CUT_SHARE = 0.2;
const GROWTH_MAX = 0.02;

const { values } = parseArgs({ options: { requests: { type: "string" }, sources: { type: "boolean" } } });
const requests = Number(values.requests ?? 1000);
const program = values.sources ? fromSources() : newestProgram();
const mb = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;

console.log(`soak: ${requests} requests to ${program.join(" ")}`);
const plan = { requests, clients: 8, cutShare: CUT_SHARE, seed: 1 };
const result = await soak(program, plan, { part: PART, rests: 5 }, (sample) => {
  const held = `${sample.liveArrays} live arrays, ${mb(sample.activeBytes)} in them, ${mb(sample.residentBytes)} resident`;
  console.log(`${String(sample.requests).padStart(6)} requests: ${held}`);
});
const growth = residentGrowth(result.samples);
console.log(`${result.answered} answered, ${result.cut} cut by the client, ${result.failures.length} failed`);
console.log(`resident memory ${(growth * 100).toFixed(2)} % from request ${PART} to ${requests}`);

const problems = result.failures.slice(0, 5);
if (result.cut < 0.8 * CUT_SHARE * requests) problems.push("too few requests were cut for the soak to show anything");
if (!result.lived) problems.push("the process has ended");
if (new Set(result.samples.map(({ liveArrays }) => liveArrays)).size > 1) problems.push("live arrays are not flat");
if (Math.abs(growth) > GROWTH_MAX) problems.push(`resident memory is not within ${GROWTH_MAX * 100} %`);
for (const problem of problems) console.error(`soak: ${problem}`);
if (problems.length > 0) process.exitCode = 1;
