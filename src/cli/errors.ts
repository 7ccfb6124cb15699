/** The command line's own error: it knows its exit code. Every other error that reaches `run.ts` is a 1. */

/** 1: something failed while running · 2: the command line itself is wrong. */
export class CliError extends Error {
  override readonly name = "CliError";
  readonly exitCode: 1 | 2;
  constructor(message: string, exitCode: 1 | 2, options?: ErrorOptions) {
    super(message, options);
    this.exitCode = exitCode;
  }
}

export function usageError(message: string): CliError {
  return new CliError(message, 2);
}
