import { difference } from './json.ts';

/** The outcome of one feature between one client and one upstream. */
export type Outcome =
  | { readonly kind: 'lossless' }
  | { readonly kind: 'degraded'; readonly how: string }
  | { readonly kind: 'not defined' }
  | { readonly kind: 'fails'; readonly why: string };

/** The ways in which content can be reduced without being lost. The texts are in docs/interop.md. */
export const HOW = {
  noOutputSchema: 'output schemas left out',
  noTaskSupport: 'task support of tools left out',
  wrapped: 'structured content that is no object wrapped as `result`',
  audioAsText: 'audio named in text',
  linkAsText: 'resource links as text',
  structuredAsText: 'structured content as text alone',
  noContext: 'completion without context',
  split: 'many blocks of a sampling message as one message each',
  upstreamCannot: 'the upstream has no words for it',
  clientCannot: 'the tool is told that the client cannot be asked',
  noCompletion: 'no notice when the URL has served its purpose',
  held: 'the result of the task at once, when it is there',
} as const;

export const LOSSLESS: Outcome = { kind: 'lossless' };
export const NOT_DEFINED: Outcome = { kind: 'not defined' };

/** Returns `lossless` if nothing was reduced. */
export function degraded(...hows: readonly string[]): Outcome {
  return hows.length === 0 ? LOSSLESS : { kind: 'degraded', how: [...new Set(hows)].join('; ') };
}

export function outcomeText(outcome: Outcome): string {
  switch (outcome.kind) {
    case 'lossless':
      return 'lossless';
    case 'degraded':
      return `degraded (${outcome.how})`;
    case 'not defined':
      return 'not defined by either revision';
    case 'fails':
      return `fails: ${outcome.why}`;
  }
}

/** @throws {Error} that names the place where the two differ. */
export function mustEqual(expected: unknown, actual: unknown, what: string): void {
  const found = difference(expected, actual);
  if (found !== undefined) throw new Error(`${what} ${found}`);
}
