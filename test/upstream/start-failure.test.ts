import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError } from '../../src/errors.ts';
import { statusFailure } from '../../src/upstream/http/http-failure.ts';
import { awaitOpening } from '../../src/upstream/lifecycle/await-opening.ts';
import { CONFIGURED } from '../../src/upstream/lifecycle/lifecycle.ts';
import { NeedsAuthorizationError } from '../../src/upstream/rpc/needs-authorization-error.ts';
import { startFailure } from '../../src/upstream/start-failure.ts';

const UP = { id: 'up', target: { kind: 'http', url: 'http://127.0.0.1/mcp', headers: {} } } as const;

const noCredentials = (retryable: boolean, cause: Error) =>
  new GatewayError('upstream-unavailable', { upstream: 'up', message: 'no credentials', retryable }, cause);

const cases = [
  {
    what: 'refused credentials',
    thrown: statusFailure('up', { status: 401, body: undefined, retryAfterMs: undefined }),
    retryable: false,
  },
  {
    what: 'a refused client secret',
    thrown: noCredentials(false, new NeedsAuthorizationError('invalid_client')),
    retryable: false,
  },
  {
    what: 'a caller not known yet',
    thrown: noCredentials(true, new NeedsAuthorizationError('new', { actor: 'nobody' })),
    retryable: true,
  },
  {
    what: 'a server with an error',
    thrown: statusFailure('up', { status: 500, body: undefined, retryAfterMs: undefined }),
    retryable: undefined,
  },
];

for (const { what, thrown, retryable } of cases) {
  // REL-08
  test(`a start that fails for ${what} ${retryable === false ? 'is not worth' : 'may be'} a retry`, () => {
    assert.equal(startFailure(UP, '', thrown).error.detail.retryable, retryable);
  });
}

test('a request that waits for correct credentials is not worth a retry', async () => {
  const waiting = { ...CONFIGURED, phase: 'needs-authorization', reason: 'refused', retryAtMs: Infinity } as const;
  for (const retryAtMs of [Infinity, performance.now() + 30_000 /* subject */]) {
    const opening = awaitOpening('up', () => ({ ...waiting, retryAtMs }), new AbortController().signal);
    await assert.rejects(opening, {
      detail: { upstream: 'up', message: 'upstream "up" is not available: refused', retryable: false },
    });
  }
});
