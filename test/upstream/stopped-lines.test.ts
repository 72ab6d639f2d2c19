import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayParts } from '../support/gateway-parts.ts';
import { memoryUpstream } from '../support/memory-upstream.ts';

test('the log says that an upstream stops only if it was started', async () => {
  const upstreams = { used: { memory: memoryUpstream({}) }, unused: { memory: memoryUpstream({}) } };
  await using at = new GatewayParts(upstreams);
  await at.upstream('used').link(at.session().session);
  await at.upstreams.stop();
  const states = at.lines.map((line) => Object(JSON.parse(line))).filter(({ msg }) => msg === 'upstream state');
  const stopped = states.filter(({ phase }) => phase === 'stopped').map(({ upstream }) => upstream);
  assert.deepEqual(stopped, ['used']);
});
