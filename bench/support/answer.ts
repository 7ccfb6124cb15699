/** The TypeScript side of `contender.ts`: measures one burst per line of standard input. */

/** Serves until the input closes. */
export async function answerBursts(burst: (request: string) => Readonly<Record<string, number>>): Promise<void> {
  for await (const line of console) if (line !== "") process.stdout.write(`${JSON.stringify(burst(line))}\n`);
}
