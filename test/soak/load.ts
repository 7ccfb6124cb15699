/**
 * A stream of requests as clients send them: several at once, of random length, streamed or not, a share of them cut at
 * a random moment. The same seed sends the same requests; when they are cut depends on the machine.
 */

export interface LoadPlan {
  readonly requests: number;
  readonly clients: number;
  /** Share of requests that the client cuts, 0…1. */
  readonly cutShare: number;
  readonly seed: number;
}

export interface LoadResult {
  answered: number;
  cut: number;
  /** What went wrong where nothing should. */
  readonly failures: string[];
}

const CUT_MS_MAX = 150;
/** More than are generated in that time. */
const CUT_TOKENS = 1500;
/** Of the golden tiny models. */
const END_OF_TEXT = 287;
const TOKENS_MAX = 96;
const WORDS_MAX = 60;

/** Sends the plan in parts of `part` requests; `afterPart` is called between them, while no request is running. */
export async function sendLoad(
  url: string,
  plan: LoadPlan,
  part: number,
  afterPart: (sent: number) => Promise<void>,
): Promise<LoadResult> {
  const random = generator(plan.seed);
  const result: LoadResult = { answered: 0, cut: 0, failures: [] };
  let sent = 0;
  while (sent < plan.requests) {
    const end = Math.min(sent + part, plan.requests);
    const client = async () => {
      while (sent < end) {
        sent++;
        await sendOne(url, random, plan.cutShare, result);
      }
    };
    await Promise.all(Array.from({ length: plan.clients }, client));
    await afterPart(sent);
  }
  return result;
}

async function sendOne(url: string, random: () => number, cutShare: number, result: LoadResult): Promise<void> {
  const stream = random() < 0.5;
  const words = 1 + Math.floor(random() * WORDS_MAX);
  const willCut = random() < cutShare;
  const body = {
    messages: [{ role: "user", content: "soak ".repeat(words) }],
    stream,
    max_tokens: willCut ? CUT_TOKENS : 1 + Math.floor(random() * TOKENS_MAX),
    temperature: random() < 0.5 ? 0 : 1,
    seed: Math.floor(random() * 1e6),
    // What is to be cut must not end by itself.
    ...(willCut && { logit_bias: { [END_OF_TEXT]: -100 } }),
  };
  const cut = new AbortController();
  const timer = willCut ? setTimeout(() => cut.abort(), random() * CUT_MS_MAX) : null;
  try {
    const reply = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal: cut.signal,
    });
    const text = await reply.text();
    const complete = stream ? text.endsWith("data: [DONE]\n\n") : text.includes('"finish_reason"');
    if (reply.status !== 200 || !complete) result.failures.push(`${reply.status}: ${text.slice(-200)}`);
    else result.answered++;
  } catch (error) {
    if (cut.signal.aborted) result.cut++;
    else result.failures.push(String(error));
  } finally {
    if (timer !== null) clearTimeout(timer);
  }
}

/** Uniform numbers in [0, 1): mulberry32. */
function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
