/**
 * A bounded map for results that can be computed again. Two generations: when the young one is full it becomes the old
 * one, and what was not asked for since is forgotten. A hit costs one look-up, unlike an exact LRU list.
 */
export class GenerationCache<V> {
  readonly #limit: number;
  readonly #cost: (key: string) => number;
  #young = new Map<string, V>();
  #old = new Map<string, V>();
  #youngCost = 0;

  /**
   * @param limit total cost that is kept at most.
   * @param cost of an entry, by its key.
   */
  constructor(limit: number, cost: (key: string) => number) {
    this.#limit = limit / 2;
    this.#cost = cost;
  }

  get(key: string): V | undefined {
    const young = this.#young.get(key);
    if (young !== undefined) return young;
    const old = this.#old.get(key);
    if (old !== undefined) this.set(key, old);
    return old;
  }

  /** Remembers `value`, unless it alone would fill the map. */
  set(key: string, value: V): void {
    const cost = this.#cost(key);
    if (cost > this.#limit || this.#young.has(key)) return;
    if (this.#youngCost + cost > this.#limit) {
      this.#old = this.#young;
      this.#young = new Map();
      this.#youngCost = 0;
    }
    this.#young.set(key, value);
    this.#youngCost += cost;
  }
}
