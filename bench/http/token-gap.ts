/**
 * What HTTP adds to the gap between two tokens: from a tick of a scripted engine to the arrival at a client on loopback,
 * with 1, 16 and 64 streams; ours against a plain `Bun.serve` loop that writes the same bytes at the same ticks.
 *
 * Usage: bun bench/http/token-gap.ts [--rounds N]
 */
import { join } from "node:path";
import { Contender, type Sample } from "../support/contender.ts";
import { pairedSpread, valuesOf } from "../support/paired.ts";
import { type Line, report } from "../support/report.ts";
import { roundsFlag } from "../support/rounds-flag.ts";
import { quantile, spread } from "../support/statistics.ts";

const STREAMS = [1, 16, 64] as const;
const TOKENS = 100;
/** What the project promises. */
const RATIO_MAX = 1.5;
/** A server compiles its way for some ten thousand tokens. */
const WARMUP = 5;

const rounds = roundsFlag(16);
const sides = ["ours", "plain"].map((name) => {
  const server = join(import.meta.dir, `server-${name}.ts`);
  return Contender.start(name, [process.execPath, join(import.meta.dir, "side.ts"), server, String(TOKENS)]);
});

const kept: Record<string, Sample>[] = [];
try {
  for (let round = -WARMUP; round < rounds; round++) {
    const samples: Record<string, Record<string, number>> = {};
    for (const streams of STREAMS) {
      for (const side of round % 2 === 0 ? sides : [...sides].reverse()) {
        const { p50_ns, p99_ns } = await side.measure(String(streams));
        samples[side.name] = {
          ...samples[side.name],
          [`p50 ${streams}`]: p50_ns ?? 0,
          [`p99 ${streams}`]: p99_ns ?? 0,
        };
      }
    }
    if (round >= 0) kept.push(samples);
  }
} finally {
  await Promise.all(sides.map((side) => side.stop()));
}

const label = (streams: number, quantile: string) =>
  `${streams} ${streams === 1 ? "stream" : "streams"}, ${quantile} of the gap added`;

function absolute(side: string, streams: number, name: string): Line {
  const value = spread(valuesOf(kept, side, `${name} ${streams}`).map((nanoseconds) => nanoseconds / 1000));
  return { name: `${side}, ${label(streams, name)}`, unit: "µs", value };
}

function medianRatio(streams: number): Line {
  const value = pairedSpread(kept, ["ours", "plain"], `p50 ${streams}`, (a, b) => a / b);
  return { name: `ours / plain, ${label(streams, "p50")}`, unit: "×", value, limit: RATIO_MAX };
}

/**
 * The slowest token of a hundred waits for other programs of a shared machine, ten times longer than for any server, so
 * pairs of rounds say nothing of it: the sides are compared in their own quiet quarter of the rounds.
 */
function tailRatio(streams: number): Line {
  const quiet = (side: string) => quantile(valuesOf(kept, side, `p99 ${streams}`), 0.25);
  const ratio = quiet("ours") / quiet("plain");
  const value = { p10: ratio, median: ratio, p90: ratio };
  return { name: `ours / plain, ${label(streams, "p99")}, quiet rounds`, unit: "×", value, limit: RATIO_MAX };
}

const lines = STREAMS.flatMap((streams) => [
  ...["p50", "p99"].flatMap((name) => [absolute("ours", streams, name), absolute("plain", streams, name)]),
  medianRatio(streams),
  tailRatio(streams),
]);
if (!report("http-token-gap", lines, kept)) process.exitCode = 1;
