/**
 * Decoder Strip: up to `start` copies of a character are dropped at the beginning of the text and up to `stop` at its
 * end. Copies that may turn out to be the end are held back.
 */
export class StripFilter {
  readonly #character: string;
  readonly #stop: number;
  #start: number;
  #held = "";

  /** @param start how many to drop in front; 0 when the text continues another one. */
  constructor(character: string, start: number, stop: number) {
    this.#character = character;
    this.#start = start;
    this.#stop = stop;
  }

  push(text: string): string {
    const all = this.#held + this.#dropStart(text);
    let hold = 0;
    while (hold < this.#stop && hold < all.length && all[all.length - 1 - hold] === this.#character) hold++;
    this.#held = all.slice(all.length - hold);
    return all.slice(0, all.length - hold);
  }

  /** The text is over: what was held back was its end and is dropped. */
  flush(): string {
    this.#held = "";
    return "";
  }

  #dropStart(text: string): string {
    let at = 0;
    while (this.#start > 0 && at < text.length) {
      if (text[at] !== this.#character) this.#start = 0;
      else {
        at++;
        this.#start--;
      }
    }
    return text.slice(at);
  }
}
