/** What a template can do wrong: bad syntax, a Python-style error at run time, or its own `raise_exception`. */

/** Message ready for the user. `line` is the template's line (1-based), null where it is not known yet. */
export class TemplateError extends Error {
  override readonly name = "TemplateError";

  constructor(
    message: string,
    readonly line: number | null = null,
    /** True for `raise_exception(m)`: the message is the template's own, word for word. */
    readonly raised: boolean = false,
  ) {
    super(message);
  }

  /** The same error with its place in the message, unless the place is known already or the words are the template's. */
  at(line: number): TemplateError {
    if (this.raised || this.line !== null) return this;
    return new TemplateError(`${this.message} (line ${line} of the template)`, line);
  }
}
