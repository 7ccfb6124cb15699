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
import { spread } from "../support/statistics.ts";

const STREAMS = [1, 16, 64] as const;
const TOKENS = 100;
/** What the project promises. */
const RATIO_MAX = 1.5;
/** A server compiles its way for some ten thousand tokens. */
const WARMUP = 5;

const rounds = roundsFlag(12);
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

const lines = STREAMS.flatMap((streams) =>
  ["p50", "p99"].flatMap((quantile): Line[] => {
    const measured = `${quantile} ${streams}`;
    const label = `${streams} ${streams === 1 ? "stream" : "streams"}, ${quantile} of the gap added`;
    const value = pairedSpread(kept, ["ours", "plain"], measured, (a, b) => a / b);
    const absolute = (side: string): Line => ({
      name: `${side}, ${label}`,
      unit: "µs",
      value: spread(valuesOf(kept, side, measured).map((nanoseconds) => nanoseconds / 1000)),
    });
    return [
      absolute("ours"),
      absolute("plain"),
      { name: `ours / plain, ${label}`, unit: "×", value, limit: RATIO_MAX },
    ];
  }),
);
if (!report("http-token-gap", lines, kept)) process.exitCode = 1;
