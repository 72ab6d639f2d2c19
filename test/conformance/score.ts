/** One line of a `checks.json` the suite writes. */
export interface Check {
  readonly id: string;
  readonly status: string;
  readonly description?: string | undefined;
  readonly errorMessage?: string | undefined;
}

/** What became of one scenario. */
export interface Score {
  readonly scenario: string;
  readonly passed: boolean;
  readonly checks: number;
  /** Why it did not pass. */
  readonly reasons: readonly string[];
}

function reason({ id, status, errorMessage, description }: Check): string {
  const said = (errorMessage ?? description ?? '').replaceAll(/\s+/g, ' ').trim().slice(0, 300);
  return `${status === 'WARNING' ? 'warning ' : ''}${id}: ${said}`;
}

/**
 * Strictly: a warning fails, and so does a scenario in which nothing but the wire schema was looked at.
 *
 * @param checks undefined where the suite left none.
 * @param failure what else went wrong, such as an exit code.
 */
export function score(scenario: string, checks: readonly Check[] | undefined, failure?: string): Score {
  const proven = checks?.filter(({ id, status }) => status === 'SUCCESS' && !id.startsWith('wire-schema')) ?? [];
  const bad = checks?.filter(({ status }) => status === 'FAILURE' || status === 'WARNING') ?? [];
  const reasons = bad.map(reason);
  if (failure !== undefined) reasons.push(failure);
  if (reasons.length === 0 && proven.length === 0) reasons.push('nothing was proven');
  return { scenario, passed: reasons.length === 0, checks: proven.length, reasons };
}
