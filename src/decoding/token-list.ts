/** A growing list of token ids: the record of truth of a row (prompt, then committed tokens). */
export class TokenList {
  private ids: Int32Array;
  length: number;

  constructor(initial: ArrayLike<number>, room: number) {
    this.ids = new Int32Array(initial.length + room);
    this.ids.set(initial);
    this.length = initial.length;
  }

  push(id: number): void {
    if (this.length === this.ids.length) {
      const larger = new Int32Array(this.ids.length * 2 + 16);
      larger.set(this.ids);
      this.ids = larger;
    }
    this.ids[this.length++] = id;
  }

  /** A view of ids [start, end). */
  slice(start: number, end: number): Int32Array {
    return this.ids.subarray(start, Math.min(end, this.length));
  }
}
