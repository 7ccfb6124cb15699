import { expect, test } from "bun:test";
import fc from "fast-check";
import { Outbox } from "../../src/engine/outbox.ts";
import type { FromEngine } from "../../src/engine/protocol.ts";

const numbered = (n: number): FromEngine => ({
  type: "tokens",
  batch: [{ id: String(n), ids: [n], logprobs: null, round: null }],
});

test("messages keep their order, one waits at most, and a flush leaves none", () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom("post", "hold", "flush")), (steps) => {
      const sent: FromEngine[] = [];
      const outbox = new Outbox((message) => sent.push(message));
      const given: FromEngine[] = [];
      for (const [n, step] of steps.entries()) {
        if (step === "flush") outbox.flush();
        else {
          given.push(numbered(n));
          outbox[step](numbered(n));
        }
        expect(sent).toEqual(given.slice(0, sent.length));
        expect(given.length - sent.length).toBe(step === "hold" ? 1 : 0);
      }
      outbox.flush();
      expect(sent).toEqual(given);
    }),
  );
});
