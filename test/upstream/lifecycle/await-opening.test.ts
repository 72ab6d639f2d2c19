import assert from 'node:assert/strict';
import { test } from 'node:test';
import { awaitOpening } from '../../../src/upstream/lifecycle/await-opening.ts';
import type { Lifecycle } from '../../../src/upstream/lifecycle/lifecycle.ts';

const PAUSED: Lifecycle = {
  phase: 'failed',
  reason: 'it crashed',
  detail: undefined,
  failuresMs: [],
  attempts: 1,
  retryAtMs: performance.now() + 1_000,
};

test('a wait for an upstream that is stopped fails as one for an unavailable upstream', async () => {
  const stopping = new AbortController();
  const waiting = awaitOpening('up', () => PAUSED, stopping.signal);
  stopping.abort();
  await assert.rejects(waiting, { code: 'upstream-unavailable', executed: 'no' });
});
