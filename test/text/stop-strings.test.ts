/** The stop matcher against a plain search in the whole text, however the text is cut. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { StopMatcher } from "../../src/text/stop-strings.ts";

interface Outcome {
  readonly text: string;
  readonly matched: string | null;
  /** Where the match ends in the whole text. */
  readonly end: number;
}

function search(text: string, stops: readonly string[]): Outcome {
  let best: Outcome = { text, matched: null, end: -1 };
  for (const stop of stops) {
    const at = text.indexOf(stop);
    if (at < 0) continue;
    const earlier = best.matched === null || at < best.text.length;
    const shorter = at === best.text.length && stop.length < (best.matched?.length ?? 0);
    if (earlier || shorter) best = { text: text.slice(0, at), matched: stop, end: at + stop.length };
  }
  return best;
}

/** Feeds the pieces and returns what came out, and after each push. */
function feed(matcher: StopMatcher, pieces: readonly string[]): { outs: string[]; rest: string } {
  return { outs: pieces.map((piece) => matcher.push(piece).text), rest: matcher.flush() };
}

const character = fc.constantFrom("a", "b", "c", "\n", "é", "🙂");
const stops = fc.array(
  fc.array(character, { minLength: 1, maxLength: 4 }).map((list) => list.join("")),
  { maxLength: 4 },
);
const pieces = fc.array(
  fc.array(character, { maxLength: 4 }).map((list) => list.join("")),
  { maxLength: 12 },
);

describe("against a search in the whole text", () => {
  test("text, match and the piece that completed it are the same", () => {
    fc.assert(
      fc.property(stops, pieces, (stops, pieces) => {
        const matcher = new StopMatcher(stops);
        const { outs, rest } = feed(matcher, pieces);
        const expected = search(pieces.join(""), stops);
        expect(outs.join("") + rest).toBe(expected.text);
        expect(matcher.matched).toBe(expected.matched);
        let length = 0;
        const completing = pieces.findIndex((piece) => {
          length += piece.length;
          return expected.matched !== null && length >= expected.end;
        });
        expect(matcher.completedBy).toBe(completing < 0 ? null : completing);
      }),
      { numRuns: 3000 },
    );
  });

  test("only what may still become a stop string is held back", () => {
    fc.assert(
      fc.property(stops, pieces, (stops, pieces) => {
        const matcher = new StopMatcher(stops);
        let given = "";
        let shown = "";
        for (const piece of pieces) {
          given += piece;
          shown += matcher.push(piece).text;
          if (matcher.matched !== null) return;
          const held = given.slice(shown.length);
          expect(held === "" || stops.some((stop) => stop.length > held.length && stop.startsWith(held))).toBe(true);
        }
      }),
      { numRuns: 1000 },
    );
  });
});

test("nothing is held back when no stop string can begin", () => {
  const matcher = new StopMatcher(["\n\nUser:"]);
  expect(matcher.push("The capital of France").text).toBe("The capital of France");
  expect(matcher.push(" is\n").text).toBe(" is");
  expect(matcher.push("\nPa").text).toBe("\n\nPa");
});

test("an earlier match that is still open is waited for", () => {
  const matcher = new StopMatcher(["abcd", "bc"]);
  expect(matcher.push("xabc")).toEqual({ text: "x", matched: null, completedBy: null });
  expect(matcher.push("d")).toEqual({ text: "", matched: "abcd", completedBy: 1 });
});

test("when it does not come, the later one has matched, in the piece that completed it", () => {
  const matcher = new StopMatcher(["abcd", "bc"]);
  matcher.push("xabc");
  expect(matcher.push("e")).toEqual({ text: "a", matched: "bc", completedBy: 0 });
});

test("and likewise at the end of the text", () => {
  const matcher = new StopMatcher(["abcd", "bc"]);
  matcher.push("xabc");
  expect(matcher.flush()).toBe("a");
  expect([matcher.matched, matcher.completedBy]).toEqual(["bc", 0]);
});

test("after a match nothing comes any more", () => {
  const matcher = new StopMatcher(["b"]);
  expect(matcher.push("abc").text).toBe("a");
  expect(matcher.push("d")).toEqual({ text: "", matched: "b", completedBy: 0 });
  expect(matcher.flush()).toBe("");
});

test("empty pieces count as pushes, so that the number is the token's", () => {
  const matcher = new StopMatcher(["ab"]);
  matcher.push("");
  matcher.push("a");
  matcher.push("");
  expect(matcher.push("b").completedBy).toBe(3);
});

test("100 kB in one piece, with 16 stop strings", () => {
  const matcher = new StopMatcher(Array.from({ length: 16 }, (_, i) => `aaaa${i}`));
  const start = performance.now();
  expect(matcher.push("aaab".repeat(25_000)).text).toHaveLength(100_000);
  expect(performance.now() - start).toBeLessThan(300);
});
