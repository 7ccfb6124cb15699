/** What the statistics of a finished request must add up to (decoding.md §13). */
import { expect } from "bun:test";
import type { GenerateRequest } from "../../src/engine/protocol.ts";
import type { Told } from "./pairs.ts";

export function checkStats({ ids, end, stats }: Told, asked: GenerateRequest): void {
  if (stats === null) return;
  const { acceptLengths, rounds, drafted, accepted, lookupRounds, parkedRounds, targetForwards } = stats;
  expect(stats.completionTokens).toBe(ids.length);
  expect(stats.promptTokens).toBe(asked.promptIds.length);
  expect(rounds).toBe(acceptLengths.length);
  expect(accepted).toBeLessThanOrEqual(drafted);
  expect(lookupRounds + parkedRounds).toBeLessThanOrEqual(rounds);
  for (const length of acceptLengths) expect(length).toBeGreaterThanOrEqual(1);
  const committed = acceptLengths.reduce((sum, length) => sum + length, 0);
  // Every round commits what it accepts and one more; the prompt gives the first token.
  if (stats.mode !== "baseline") expect(committed).toBe(accepted + rounds);
  const behindFirst = Math.max(0, ids.length - 1);
  if (end === "stop") expect(committed).toBeGreaterThanOrEqual(behindFirst);
  else expect(committed).toBe(behindFirst);
  if (ids.length > 0) expect(targetForwards).toBeGreaterThanOrEqual(1 + rounds);
}
