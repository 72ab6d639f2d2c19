import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { RawObject } from '../../src/json/json.ts';
import type { Link, LinkUser } from '../../src/upstream/link/link.ts';
import { Opener } from '../../src/upstream/link/opener.ts';
import { LinksByKey } from '../../src/upstream/links-by-key.ts';
import { memoryUpstream } from '../support/memory-upstream.ts';

const EVENTS = {
  onOpen: () => undefined,
  onNotification: () => undefined,
  onServerRequest: () => undefined,
  onClose: () => undefined,
};

async function linkWith(key: string): Promise<Link<string, LinkUser>> {
  const { start } = memoryUpstream({});
  const opener = new Opener<string, LinkUser>({
    upstream: 'up',
    transports: [{ era: 'legacy', isProcess: false, hasCallStreams: true, start }],
    clientInfo: RawObject.EMPTY,
    timeouts: () => ({ startMs: 2_000, callMs: 2_000 }),
    log: pino({ level: 'silent' }),
  });
  const placeIn = () => ({ key, shared: false });
  const request = {
    clientEra: 'legacy',
    audience: '',
    clientCapabilities: RawObject.EMPTY,
    capabilityKey: '',
  } as const;
  return await opener.open({ ...request, placeIn }, EVENTS, AbortSignal.timeout(5_000));
}

test('a link that cannot be opened is removed, unless another has taken its place', async () => {
  const links = new LinksByKey<string, LinkUser>();
  const failing = Promise.reject<Link<string, LinkUser>>(new Error('refused'));
  links.set('a', failing);
  await assert.rejects(failing);
  assert.equal(links.get('a'), undefined);
  const { promise, reject } = Promise.withResolvers<Link<string, LinkUser>>();
  links.set('a', promise);
  const other = linkWith('a');
  links.set('a', other);
  reject(new Error('refused'));
  await assert.rejects(promise);
  assert.equal(links.get('a'), other);
  await (await other).connection.close();
});

test('a link of another era than expected moves to its own key, where another may be', async () => {
  const links = new LinksByKey<string, LinkUser>();
  const [first, second] = [await linkWith('own'), await linkWith('own')];
  links.set('expected', Promise.resolve(first));
  assert.equal(links.move('expected', first), undefined);
  assert.equal(links.get('expected'), undefined);
  assert.equal(await links.get('own'), first);
  links.set('expected', Promise.resolve(second));
  assert.equal(await links.move('expected', second), first);
  assert.equal(links.move('own', first), undefined);
  for (const link of [first, second]) await link.connection.close();
});
