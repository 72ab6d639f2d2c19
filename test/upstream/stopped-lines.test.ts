import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayParts } from '../support/gateway-parts.ts';
import { memoryUpstream } from '../support/memory-upstream.ts';

const WARN = 40;

test('the log says that an upstream stops only if it was started', async () => {
  const upstreams = { used: { memory: memoryUpstream({}) }, unused: { memory: memoryUpstream({}) } };
  await using at = new GatewayParts(upstreams);
  await at.upstream('used').link(at.session().session);
  await at.upstreams.stop();
  const states = at.lines.map((line) => Object(JSON.parse(line))).filter(({ msg }) => msg === 'upstream state');
  const stopped = states.filter(({ phase }) => phase === 'stopped').map(({ upstream }) => upstream);
  assert.deepEqual(stopped, ['used']);
});

test('an upstream that is still starting when the gateway stops is no warning', async () => {
  const begun = Promise.withResolvers<void>();
  const start = () => (begun.resolve(), new Promise<never>(() => undefined));
  await using at = new GatewayParts({ slow: { memory: memoryUpstream({ start }) } });
  const linking = at.upstream('slow').link(at.session().session);
  await begun.promise;
  await at.upstreams.stop();
  await assert.rejects(linking);
  const warned = at.lines.map((line) => Object(JSON.parse(line))).filter(({ level }) => level >= WARN);
  assert.deepEqual(warned, []);
});
