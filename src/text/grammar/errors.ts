/** What is wrong with a schema or a grammar of a request: the client's mistake, found before anything is queued. */
export class GrammarError extends Error {
  override readonly name = "GrammarError";
  /** Empty unless the fault is in a JSON schema. */
  readonly pointer: string | null;

  /** @param pointer JSON pointer into the schema; null: not a schema */
  constructor(pointer: string | null, what: string) {
    super(pointer === null ? what : `${pointer === "" ? "(root)" : pointer}: ${what}`);
    this.pointer = pointer;
  }
}

/** A limit of the whole schema was passed (structured-output.md §1). */
export class SchemaTooLarge extends GrammarError {
  constructor(what: string, count: number, limit: number) {
    super(null, `schema too large: ${what} ${count} > ${limit}`);
  }
}
