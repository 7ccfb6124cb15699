/**
 * One side of a comparison: a process that measures one burst for every line it gets (what to measure, where there is a
 * choice) and answers with one line of JSON, an object of numbers. It lives through the whole comparison, warm and asleep while the other side measures.
 */

export type Sample = Readonly<Record<string, number>>;

export class Contender {
  private readonly lines: AsyncIterator<string>;

  private constructor(
    readonly name: string,
    private readonly child: Bun.Subprocess<"pipe", "pipe", "inherit">,
  ) {
    this.lines = linesOf(child.stdout);
  }

  static start(
    name: string,
    command: readonly string[],
    environment: Readonly<Record<string, string>> = {},
  ): Contender {
    const env = { ...process.env, ...environment };
    return new Contender(name, Bun.spawn([...command], { env, stdin: "pipe", stdout: "pipe", stderr: "inherit" }));
  }

  /** One burst. Throws when the process has ended or answers with something else. */
  async measure(request = "burst"): Promise<Sample> {
    this.child.stdin.write(`${request}\n`);
    this.child.stdin.flush();
    const { value, done } = await this.lines.next();
    if (done) throw new Error(`${this.name} ended (exit ${await this.child.exited}) instead of answering`);
    return JSON.parse(value) as Sample;
  }

  /** Ends the process: its input closes. */
  async stop(): Promise<void> {
    this.child.stdin.end();
    await this.child.exited;
  }
}

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const piece of stream) {
    const parts = (rest + decoder.decode(piece, { stream: true })).split("\n");
    rest = parts.pop() ?? "";
    yield* parts;
  }
}
