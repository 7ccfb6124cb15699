/**
 * A set of literal strings, searched left to right and longest first, as added tokens are matched by the Rust
 * library. A trie over UTF-16 units; the strings are well formed, so a match never cuts a character.
 */
interface TrieNode {
  readonly next: Map<number, TrieNode>;
  /** Some string of the set ends here. */
  end: boolean;
}

function newNode(): TrieNode {
  return { next: new Map(), end: false };
}

export class LiteralSet {
  readonly #root = newNode();
  readonly #reversed = newNode();
  /** Length of the longest string, in UTF-16 units. */
  readonly longest: number;

  constructor(literals: Iterable<string>) {
    let longest = 0;
    for (const literal of literals) {
      longest = Math.max(longest, literal.length);
      insert(this.#root, literal, 0, 1);
      insert(this.#reversed, literal, literal.length - 1, -1);
    }
    this.longest = longest;
  }

  /** Length of the longest string of the set that stands at `at`; 0 if none does. */
  matchAt(text: string, at: number): number {
    let node = this.#root.next.get(text.charCodeAt(at));
    let length = 0;
    for (let i = at + 1; node !== undefined; i++) {
      if (node.end) length = i - at;
      if (i >= text.length) break;
      node = node.next.get(text.charCodeAt(i));
    }
    return length;
  }

  /** Whether `text` ends in the beginning of a string of the set, without its end. */
  endsInBeginning(text: string): boolean {
    return touches(this.#root, text, Math.max(0, text.length - this.longest + 1), 1);
  }

  /** Whether `text` begins with the end of a string of the set, without its beginning. */
  beginsWithEnd(text: string): boolean {
    return touches(this.#reversed, text, Math.min(text.length, this.longest - 1) - 1, -1);
  }
}

function insert(root: TrieNode, literal: string, from: number, step: 1 | -1): void {
  let node = root;
  for (let i = from; i >= 0 && i < literal.length; i += step) {
    const unit = literal.charCodeAt(i);
    let next = node.next.get(unit);
    if (next === undefined) {
      next = newNode();
      node.next.set(unit, next);
    }
    node = next;
  }
  node.end = true;
}

/** Whether a walk that starts at one of the places from `from` on can reach the text's edge and still go on. */
function touches(root: TrieNode, text: string, from: number, step: 1 | -1): boolean {
  for (let start = from; start >= 0 && start < text.length; start += step) {
    let node: TrieNode | undefined = root;
    let i = start;
    for (; node !== undefined && i >= 0 && i < text.length; i += step) node = node.next.get(text.charCodeAt(i));
    if (node !== undefined && node.next.size > 0) return true;
  }
  return false;
}
