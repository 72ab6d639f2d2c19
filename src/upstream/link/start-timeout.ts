/** The cause of a start that took longer than `timeouts.start`. The message is for operators. */
export class StartTimeoutError extends Error {
  override readonly name = 'StartTimeoutError';
}

/** Ends the reason of a start that took too long, in the words that clients read. */
export const START_SETTING = '(timeouts.start)';

/** Returns whether a start was aborted because its time ran out, and not because the upstream is stopping. */
export function isOutOfTime({ aborted, reason }: AbortSignal): boolean {
  return aborted && reason instanceof DOMException && reason.name === 'TimeoutError';
}
