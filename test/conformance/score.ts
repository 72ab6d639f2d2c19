/** One entry of a `checks.json` of the suite. */
export interface Check {
  readonly id: string;
  readonly status: string;
  readonly description?: string | undefined;
  readonly errorMessage?: string | undefined;
}

/** The result of one scenario. */
export interface Score {
  readonly scenario: string;
  readonly passed: boolean;
  readonly checks: number;
  /** The reasons for a failure. */
  readonly reasons: readonly string[];
}

function reason({ id, status, errorMessage, description }: Check): string {
  const text = (errorMessage ?? description ?? '').replaceAll(/\s+/g, ' ').trim().slice(0, 300);
  return `${status === 'WARNING' ? 'warning ' : ''}${id}: ${text}`;
}

/**
 * Returns the result of a scenario. A warning is a failure, and so is a scenario that has checked only the wire schema.
 *
 * @param checks undefined if the suite wrote none.
 * @param failure another failure, such as an exit code.
 */
export function score(scenario: string, checks: readonly Check[] | undefined, failure?: string): Score {
  const proven = checks?.filter(({ id, status }) => status === 'SUCCESS' && !id.startsWith('wire-schema')) ?? [];
  const bad = checks?.filter(({ status }) => status === 'FAILURE' || status === 'WARNING') ?? [];
  const reasons = bad.map(reason);
  if (failure !== undefined) reasons.push(failure);
  if (reasons.length === 0 && proven.length === 0) reasons.push('nothing was proven');
  return { scenario, passed: reasons.length === 0, checks: proven.length, reasons };
}
