import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { RawObject } from '../../src/json/json.ts';
import { detach } from '../../src/json/kept-text.ts';
import type { Link } from '../../src/upstream/link/link.ts';
import { Opener } from '../../src/upstream/link/opener.ts';
import type { ConnectionPermit } from '../../src/upstream/quota/connection-quota.ts';
import { UpstreamLinks } from '../../src/upstream/upstream-links.ts';
import { memoryUpstream } from '../support/memory-upstream.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { NO_LINK_EVENTS } from '../support/link-events.ts';

async function linkWith(key: string): Promise<Link<string>> {
  const { start } = memoryUpstream({});
  const opener = new Opener<string>({
    upstream: 'up',
    transports: [{ era: 'legacy', isProcess: false, hasCallStreams: true, start }],
    clientInfo: RawObject.EMPTY,
    timeouts: () => ({ startMs: PATIENCE_MS, callMs: PATIENCE_MS }),
    log: pino({ level: 'silent' }),
    onLimit: () => undefined,
  });
  const placeIn = () => ({ key, purpose: 'clients' }) as const;
  const request = {
    clientEra: 'legacy',
    audience: '',
    clientCapabilities: RawObject.EMPTY,
    capabilityKey: '',
  } as const;
  return await opener.open({ ...request, placeIn }, NO_LINK_EVENTS, AbortSignal.timeout(PATIENCE_MS));
}

const PERMIT: ConnectionPermit = { release: () => undefined, assign: () => undefined };

test('a link that cannot be opened is removed, unless another has taken its place', async () => {
  const links = new UpstreamLinks<string>();
  const failing = Promise.reject<Link<string>>(new Error('refused'));
  links.setOpening('a', failing);
  await assert.rejects(failing);
  assert.equal(links.find('a'), undefined);
  const { promise, reject } = Promise.withResolvers<Link<string>>();
  links.setOpening('a', promise);
  const other = linkWith('a');
  links.setOpening('a', other);
  reject(new Error('refused'));
  await assert.rejects(promise);
  assert.equal(links.find('a'), other);
  await (await other).connection.close();
});

test('a link is claimed until the last of several listings over it has ended', async () => {
  const links = new UpstreamLinks<string>();
  const link = await linkWith('a');
  // A connection for lists has no client of its own.
  link.place = { key: 'a', purpose: 'discovery' };
  links.add(link, PERMIT);
  const [first, second] = [Promise.resolve(1), Promise.resolve(2)];
  for (const reading of [first, second]) links.beginReading(link, reading);
  links.endReading(link, first);
  assert.deepEqual([links.recordOf(link)?.isClaimed, links.recordOf(link)?.readings], [true, new Set([second])]);
  links.endReading(link, undefined);
  assert.equal(links.recordOf(link)?.isClaimed, true, 'one that has not begun does not end the other');
  links.endReading(link, second);
  assert.equal(links.recordOf(link)?.isClaimed, false);
  await link.connection.close();
});

test('a link of another era than expected moves to its own key, where another may be', async () => {
  const links = new UpstreamLinks<string>();
  const [first, second] = [await linkWith('own'), await linkWith('own')];
  for (const link of [first, second]) links.add(link, PERMIT);
  links.setOpening('expected', Promise.resolve(first));
  assert.equal(links.place('expected', first), first);
  assert.equal(links.find('expected'), undefined);
  assert.equal(await links.find('own'), first);
  links.setOpening('expected', Promise.resolve(second));
  assert.equal(await links.place('expected', second), first);
  assert.equal(links.place('own', first), first);
  assert.deepEqual([...links], [first]);
  await links.whenClosed();
  assert.deepEqual([first.connection.isClosed, second.connection.isClosed], [false, true]);
  await first.connection.close();
});

test('a link of another era than expected that was lost at once gets no key', async () => {
  const links = new UpstreamLinks<string>();
  const link = await linkWith('own');
  links.setOpening('expected', Promise.resolve(link));
  assert.equal(links.place('expected', link), link);
  assert.deepEqual([links.find('expected'), links.find('own')], [undefined, undefined]);
  await link.connection.close();
});

test('a removed link gives its place in the quotas back when it is closed, once', async () => {
  const links = new UpstreamLinks<string>();
  const link = await linkWith('a');
  const events: string[] = [];
  links.setOpening('a', Promise.resolve(link));
  const release = () => void events.push(link.connection.isClosed ? 'released' : 'released too early');
  links.add(link, { ...PERMIT, release });
  assert.equal(links.recordOf(link)?.isClaimed, true);
  const record = links.remove(link);
  assert.ok(record !== undefined);
  assert.deepEqual(
    [links.remove(link), links.recordOf(link), links.find('a'), links.size],
    [undefined, undefined, undefined, 0],
  );
  void links.close(record);
  assert.deepEqual(events, []);
  await links.whenClosed();
  assert.deepEqual(events, ['released']);
});

test('a link that gave up its key and permit stays open until its last request ends', async () => {
  const links = new UpstreamLinks<string>();
  const [link, next] = [await linkWith('a'), await linkWith('a')];
  let isCounted = true;
  links.setOpening('a', Promise.resolve(link));
  links.add(link, { ...PERMIT, release: () => (isCounted = false) });
  link.calls = 1;
  // Clients poll it over the next link.
  link.tasks.set(detach('t'), { owner: '', timer: setTimeout(() => undefined) });
  assert.deepEqual([links.release(link), links.release(link), links.find('a')], [true, false, undefined]);
  assert.equal(isCounted, false);
  const opening = Promise.resolve(next);
  links.setOpening('a', opening);
  assert.deepEqual([links.isDone(link), links.size], [false, 1]);
  link.calls = 0;
  assert.equal(links.isDone(link), true);
  links.remove(link);
  assert.equal(links.find('a'), opening);
  for (const one of [link, next]) await one.connection.close();
});
