/**
 * What `benchmark` asks. The first three and the warm-up are the reference's (mlx-dspark 0.20.3), so that runs can be
 * compared; the row of a run is their mean. The fourth repeats its own text, which is what lookup drafts are for.
 */

export type PromptName = "chat" | "code" | "math" | "copy";

const PASSAGE =
  "The harbour of Brinmouth opens to the east, so the fishing boats leave before sunrise and return at noon. " +
  "Old Tobias mends the nets on the stone quay. His daughter Maren counts the baskets, weighs the herring, and writes " +
  "the numbers into a blue book. In winter the wind comes from the north, the boats stay tied to the quay, and the " +
  "blue book stays closed. Then Tobias carves small boats from driftwood and Maren paints their names on the bows.";

export const PROMPTS: Readonly<Record<PromptName, string>> = {
  chat: "Explain how rainbows form.",
  code: "Write a Python function to check if a string is a palindrome.",
  math: "A train travels 120 km in 1.5 hours. What is its average speed in m/s? Show your work.",
  copy: `Repeat the following text exactly, word for word, and nothing else:\n\n${PASSAGE}`,
};

/** Prompts whose mean is the row of a run. */
export const ROW_PROMPTS: readonly PromptName[] = ["chat", "code", "math"];

export const WARMUP = { prompt: "Tell me about the sea.", tokens: 100 } as const;
