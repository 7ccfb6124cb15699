/** `generate --verify-lossless`: what is asked of the engine, what is said, and how it ends. */
import { describe, expect, test } from "bun:test";
import type { ReplayReport } from "../../src/engine/protocol.ts";
import { at } from "../server/harness.ts";
import { EOS, writes } from "../server/scripted-engine.ts";
import { cliBox } from "./harness.ts";

const line = (text: string) => text.split("\n").filter((one) => /^lossless|^ {2}token/.test(one));

/** The replay chooses another token at one place, `deficit` above the committed one. */
function differsAt(index: number, deficit: number) {
  return ({ steps, dtype }: ReplayReport): ReplayReport => ({
    dtype,
    steps: steps.map((step, i) => (i === index ? { ...step, choice: 65, rank: 2, deficit } : step)),
  });
}

describe("--verify-lossless", () => {
  test("reads the whole answer again behind its prompt, and says that it agrees", async () => {
    const box = cliBox();
    expect(await box.run("generate", "--prompt", "hi", "--verify-lossless")).toBe(0);
    const asked = box.engine.requests[0];
    expect(asked?.topLogprobs).toBe(2);
    expect(box.engine.replayed).toMatchObject([
      { promptIds: asked?.promptIds, ids: [72, 101, 108, 108, 111, 46, EOS] },
    ]);
    expect(line(box.stderr())).toEqual([
      "lossless: yes · 7 of 7 tokens are what plain decoding chooses · 7 of 7 ranked 1 in their own rounds · smallest margin 1.00",
    ]);
    expect(box.stdout()).toBe("Hello.\n");
  });

  test("a token that plain decoding does not choose: named, with rank and distance, and exit 1", async () => {
    const box = cliBox();
    box.engine.replays = differsAt(2, 0.25);
    expect(await box.run("generate", "--prompt", "hi", "--verify-lossless")).toBe(1);
    expect(line(box.stderr())).toEqual([
      expect.stringContaining("lossless: NO · 6 of 7 tokens"),
      "  token 2: id 108 is choice number 2, 0.250 below id 65: a fault",
    ]);
  });

  test("what floating point excuses is told and no failure", async () => {
    const box = cliBox();
    box.engine.replays = differsAt(2, 1e-6);
    expect(await box.run("generate", "--prompt", "hi", "--verify-lossless")).toBe(0);
    expect(line(box.stderr())[1]).toEndWith("a tie of floating point");
  });

  test("a token that its own round ranks second is wrong whatever the replay says", async () => {
    const box = cliBox({
      script: () =>
        writes("Hi", {
          top: [
            [65, -0.1],
            [66, -0.2],
          ],
        }),
    });
    expect(await box.run("generate", "--prompt", "hi", "--verify-lossless")).toBe(1);
    expect(line(box.stderr())[1]).toBe("  token 0 (id 72) was committed as choice number 3");
  });

  test("--json carries the verdict; without the flag nothing is replayed", async () => {
    const box = cliBox();
    box.engine.replays = differsAt(1, 0.5);
    expect(await box.run("generate", "--prompt", "hi", "--verify-lossless", "--json")).toBe(1);
    const verdict = at(JSON.parse(box.stdout()), "lossless");
    expect(verdict).toMatchObject({ lossless: false, tokens: 7, argmax_equal: 6, max_gap_at_mismatch: 0.5 });
    expect(verdict).toMatchObject({ mismatches: [{ index: 1, token: 101, choice: 65, rank: 2, kind: "fail" }] });
    const plain = cliBox();
    await plain.run("generate", "--prompt", "hi");
    expect(plain.engine.replayed).toEqual([]);
  });

  test("sampling needs a seed, and gives no ranks", async () => {
    const box = cliBox();
    expect(await box.run("generate", "--prompt", "hi", "--verify-lossless", "--temperature", "1")).toBe(2);
    expect(box.stderr()).toContain("--verify-lossless needs");
    const seeded = cliBox();
    expect(await seeded.run("generate", "--verify-lossless", "--temperature", "1", "--seed", "3")).toBe(0);
    expect(seeded.engine.replayed[0]?.sampling).toMatchObject({ temperature: 1, seed: "3" });
    expect(line(seeded.stderr())[0]).not.toContain("ranked");
  });
});
