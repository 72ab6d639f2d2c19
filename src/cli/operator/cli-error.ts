/** Exit codes of the commands that talk to a running gateway. docs/cli.md documents them; they do not change. */
export const EXIT = {
  ok: 0,
  /** The gateway refused the request, or is not ready. */
  failed: 1,
  /** The command line is wrong. */
  usage: 2,
  /** The key is missing or not one of an operator. */
  unauthorized: 3,
  /** No gateway was found, or it does not answer. */
  unreachable: 4,
  /** The tool ran and reported an error. */
  toolError: 5,
} as const;

/** A failure of a command. The message is one line that says what to do. */
export class CliError extends Error {
  override readonly name = 'CliError';
  readonly exitCode: number;

  constructor(exitCode: number, message: string, cause?: unknown) {
    super(message, { cause });
    this.exitCode = exitCode;
  }
}
