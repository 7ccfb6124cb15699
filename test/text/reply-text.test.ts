/** The text chain of a row: what comes out does not depend on how many tokens are pushed at a time. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { PLAIN_REPLY, type ReplyForm } from "../../src/text/reply/reply-parser.ts";
import { type ReplyPiece, ReplyText, type TextToken } from "../../src/text/reply-text.ts";
import { StopMatcher } from "../../src/text/stop-strings.ts";

const EOS = 256;
const TAGS = { kind: "tags", tags: { open: "<think>", close: "</think>" } } as const;

/** Ids behind the bytes that stand for whole words. */
const WORDS = ["🙂", "a🙂é", " the"];

/** A token is a byte, so that characters come in parts, or a word. */
function bytes() {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const bytesOf = (id: number) => (id < EOS ? Uint8Array.of(id) : new TextEncoder().encode(WORDS[id - EOS - 1]));
  return {
    push: (id: number) => decoder.decode(bytesOf(id), { stream: true }),
    flush: () => decoder.decode(),
  };
}

interface Outcome {
  readonly parts: { type: string; text: string }[];
  readonly tokens: TextToken<number>[];
  readonly counts: readonly [number, number];
  readonly stop: string | null;
}

/** Everything that came out, neighbouring pieces of a kind joined. */
function outcome(pushes: readonly (readonly number[])[], form: ReplyForm, stops: readonly string[]): Outcome {
  const reply = new ReplyText<number>({
    detokenizer: bytes(),
    stops: new StopMatcher(stops),
    silentIds: new Set([EOS]),
    form,
  });
  const parts: { type: string; text: string }[] = [];
  const tokens: TextToken<number>[] = [];
  const take = (pieces: readonly ReplyPiece<number>[]) => {
    for (const piece of pieces) {
      tokens.push(...piece.tokens);
      const text = piece.type === "call" ? piece.call.name : piece.text;
      const last = parts.at(-1);
      if (last?.type === piece.type && piece.type !== "call") last.text += text;
      else parts.push({ type: piece.type, text });
    }
  };
  let at = 0;
  for (const ids of pushes) {
    take(
      reply.push(
        ids,
        ids.map(() => at++),
      ),
    );
  }
  take(reply.finish("ended"));
  tokens.push(...reply.rest());
  return { parts, tokens, counts: [reply.completionTokens, reply.reasoningTokens], stop: reply.stopString };
}

const word = fc.constantFrom("a", " ", "é", "🙂", "\n", "<think>", "</think>", "<", "stop", "st", "日本");
const forms: fc.Arbitrary<ReplyForm> = fc.constantFrom(
  PLAIN_REPLY,
  ...(["outside", "inside", "answer"] as const).map((start) => ({ ...PLAIN_REPLY, reasoning: TAGS, start })),
);

test("one token at a time, all at once, or cut anywhere: the same text, tokens, places and counts", () => {
  const setting = fc.record({
    text: fc.array(word, { maxLength: 20 }).map((words) => [...new TextEncoder().encode(words.join(""))]),
    form: forms,
    stops: fc.constantFrom([], ["stop"]),
    sizes: fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 8 }),
    silentAt: fc.option(fc.nat(30)),
    whole: fc.array(fc.record({ at: fc.nat(30), word: fc.nat(WORDS.length - 1) }), { maxLength: 4 }),
  });
  fc.assert(
    fc.property(setting, ({ text, form, stops, sizes, silentAt, whole }) => {
      const ids = [...text];
      for (const { at, word } of whole) ids.splice(Math.min(at, ids.length), 0, EOS + 1 + word);
      if (silentAt !== null) ids.splice(Math.min(silentAt, ids.length), 0, EOS);
      const cut: number[][] = [];
      for (let at = 0, i = 0; at < ids.length; i++) {
        const size = sizes[i % sizes.length] ?? 1;
        cut.push(ids.slice(at, at + size));
        at += size;
      }
      const single = ids.map((id) => [id]);
      const wanted = outcome(ids.length > 0 ? [ids] : [], form, stops);
      expect(outcome(single, form, stops)).toEqual(wanted);
      expect(outcome(cut, form, stops)).toEqual(wanted);
    }),
    { numRuns: 2000 },
  );
});
