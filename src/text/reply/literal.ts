/**
 * Looking for one literal in text that comes in pieces (Knuth, Morris and Pratt 1977): after each character it knows how
 * much of the literal the text ends with, so that nothing but a possible beginning is ever held back.
 */

export class LiteralSearch {
  readonly length: number;
  /** For each number of matched characters, the longest shorter beginning that the text then still ends with. */
  private readonly shorter: readonly number[];
  private matchedCount = 0;

  /** @param literal one of the program's own: what is computed of it is kept */
  constructor(private readonly literal: string) {
    this.length = literal.length;
    this.shorter = knownBorders.get(literal) ?? bordersOf(literal);
    knownBorders.set(literal, this.shorter);
  }

  /** Characters of the literal that the text ends with, fewer than all. */
  get matched(): number {
    return this.matchedCount;
  }

  /** Takes one UTF-16 unit; true when it completes the literal. The search then begins anew. */
  step(unit: string): boolean {
    let matched = this.matchedCount;
    while (matched > 0 && this.literal[matched] !== unit) matched = this.shorter[matched] ?? 0;
    if (this.literal[matched] === unit) matched += 1;
    const complete = matched === this.length;
    this.matchedCount = complete ? 0 : matched;
    return complete;
  }

  reset(): void {
    this.matchedCount = 0;
  }
}

const knownBorders = new Map<string, readonly number[]>();

function bordersOf(literal: string): number[] {
  const borders = [0, 0];
  let border = 0;
  for (let i = 1; i < literal.length; i++) {
    while (border > 0 && literal[border] !== literal[i]) border = borders[border] ?? 0;
    if (literal[border] === literal[i]) border += 1;
    borders.push(border);
  }
  return borders;
}

/** One of a few literals, from the first character on; for a place where nothing else may stand. */
export class LiteralChoice<T extends string> {
  /** Bit i: literal i may still come. */
  private live: number;
  private taken = 0;

  constructor(private readonly literals: readonly T[]) {
    this.live = (1 << literals.length) - 1;
  }

  /** Characters of a beginning that is there. */
  get matched(): number {
    return this.taken;
  }

  /** Takes one UTF-16 unit: the literal that it completes, null while one may still come, undefined if none can. */
  step(unit: string): T | null | undefined {
    let found: T | undefined;
    for (let i = 0; i < this.literals.length; i++) {
      const literal = this.literals[i];
      if (literal === undefined || (this.live & (1 << i)) === 0) continue;
      if (literal[this.taken] !== unit) this.live &= ~(1 << i);
      else if (literal.length === this.taken + 1) found = literal;
    }
    this.taken += 1;
    if (found === undefined && this.live !== 0) return null;
    this.reset();
    return found;
  }

  private reset(): void {
    this.live = (1 << this.literals.length) - 1;
    this.taken = 0;
  }
}

/** White space as models write it around markup. */
export function isBlank(unit: string): boolean {
  return unit === " " || unit === "\n" || unit === "\t" || unit === "\r" || unit === "\v" || unit === "\f";
}
