import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError, toRpcError } from '../src/errors.ts';

// N-70
test('the message of an error holds 1 000 characters of a text that a client has sent', () => {
  const { message } = toRpcError(
    new GatewayError('unknown-tool', { message: 'x'.repeat(4_000_000), advice: 'do this' }),
  );
  assert.equal(message, `Unknown tool: ${'x'.repeat(1_000)}…; do this`);
  assert.equal(new GatewayError('unknown-tool', { message: 'name' }).message, 'Unknown tool: name');
});
