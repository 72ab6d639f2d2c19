import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nextStepFor, type UpstreamFacts } from '../../src/compose/next-step.ts';

const FINE: UpstreamFacts = {
  id: 'up',
  transport: 'stdio',
  state: 'ready',
  reason: undefined,
  isDisabled: false,
  isMisconfigured: false,
};

const cases: readonly (Partial<UpstreamFacts> & { readonly what: string; readonly step: RegExp | undefined })[] = [
  { what: 'is ready', step: undefined },
  { what: 'was not used yet', state: 'configured', step: undefined },
  { what: 'is starting', state: 'starting', step: undefined },
  {
    what: 'is degraded',
    state: 'degraded',
    step: /^It is ready again with the next start or listing that succeeds.*linkspan restart up/,
  },
  {
    what: 'is in a crash loop',
    state: 'failed',
    reason: 'crash loop: failed 5 times',
    step: /soon after each start.*linkspan logs/,
  },
  {
    what: 'has no program',
    state: 'failed',
    reason: 'command "npx" was not found; install Node.js',
    step: /^Correct "command" in its entry, or install the program\. It is tried again when a client needs it; to try now: linkspan restart up$/,
  },
  {
    what: 'finds no room for a process',
    state: 'failed',
    reason:
      'command "npx" could not be started (EAGAIN): there is no room for another process (ulimit -u, or the pids limit of the container) (could not start npx: EAGAIN)',
    step: /^Give the gateway more of what its reason names\. It is tried again by itself; to try now: linkspan restart up$/,
  },
  {
    what: 'has no working directory',
    state: 'failed',
    reason: 'the working directory of command "x" does not exist or is no directory',
    step: /^Correct "cwd" in its entry\. It is tried again when a client needs it; to try now: linkspan restart up$/,
  },
  { what: 'did not start', state: 'failed', reason: 'spawn ENOENT', step: /did not start.*correct its command/ },
  {
    what: 'did not start in time',
    state: 'failed',
    reason: 'too slow to start: failed 5 times; last: did not start within 30 s (timeouts.start)',
    step: /linkspan prefetch.*raise timeouts\.start.*linkspan restart up/,
  },
  { what: 'is remote and refuses', state: 'failed', transport: 'http', step: /Check its URL.*tried again by itself/ },
  {
    what: 'gets no credentials',
    state: 'failed',
    transport: 'http',
    reason: 'the gateway has no credentials for upstream "up": the issuer did not give them out; try again',
    step: /^Check "auth" in its entry, and that the authorization server answers/,
  },
  { what: 'has a wrong entry', state: 'failed', isMisconfigured: true, step: /Correct its entry/ },
  {
    what: 'is disabled',
    state: 'failed',
    isDisabled: true,
    isMisconfigured: true,
    step: /into service again.*restart up/,
  },
];

for (const { what, step, ...facts } of cases) {
  // N-84
  test(`an upstream that ${what} ${step === undefined ? 'needs nothing' : 'has a next step'}`, () => {
    const next = nextStepFor({ ...FINE, ...facts });
    if (step === undefined) assert.equal(next, undefined);
    else assert.match(next ?? '', step);
  });
}
