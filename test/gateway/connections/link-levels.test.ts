import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LinkLevels, PREPARE_MS } from '../../../src/gateway/connections/link-levels.ts';
import { GatewayParts } from '../../support/gateway-parts.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';
import { stopTime } from '../../support/stopped-time.ts';

const LOGGING = { logging: {} };

/** The levels of the links of one upstream, and those that were sent. */
function levelling(capabilities: object, send: () => Promise<void> = () => Promise.resolve()) {
  const at = new GatewayParts({ up: { memory: memoryUpstream({ capabilities }), isolation: 'shared' } });
  const sent: string[] = [];
  const levels = new LinkLevels((_link, level) => {
    sent.push(level);
    return send();
  }, at.log);
  return { at, levels, sent };
}

test('the level of a link falls and rises with the users that it has', async () => {
  const { at, levels, sent } = levelling(LOGGING);
  await using _ = at;
  const upstream = at.upstream('up');
  const holders = ([undefined, 'warning', 'debug', 'debug'] as const).map((logLevel) => {
    const { session } = logLevel === undefined ? at.session() : at.session({ logLevel });
    return session;
  });
  const [plain] = holders;
  assert.ok(plain !== undefined);
  const link = await upstream.link(plain);
  await levels.set(link);
  for (const holder of holders.slice(1)) {
    assert.equal(await upstream.link(holder), link);
    await levels.set(link);
  }
  assert.deepEqual(sent, ['info', 'debug', 'debug'], 'one user alone has set none');
  for (const holder of holders.slice(1).toReversed()) levels.releaseUser(holder, upstream);
  assert.deepEqual(sent.slice(3), ['info'], 'and none for equal levels');
  assert.deepEqual([...link.users], [plain]);
});

test('a request lowers the level of its group, and does not raise it', async () => {
  const { at, levels, sent } = levelling(LOGGING);
  await using _ = at;
  const { group } = at.group();
  const link = await at.upstream('up').link(group);
  for (const level of ['error', 'warning', 'error', 'debug'] as const) await levels.ensure(group, link, level);
  assert.deepEqual([sent, group.logLevel], [['error', 'warning', 'debug'], 'debug']);
});

//
test('a request lowers the level of each link that it uses', async () => {
  const { at, levels, sent } = levelling(LOGGING);
  await using _ = at;
  const { group } = at.group();
  const upstream = at.upstream('up');
  const links = [
    await upstream.link(group),
    await at.create('other', { memory: memoryUpstream({ capabilities: LOGGING }) }).link(group),
  ];
  for (const link of [...links, ...links]) await levels.ensure(group, link, 'debug');
  assert.deepEqual(
    [sent, links.map(({ logLevel }) => logLevel)],
    [
      ['debug', 'debug'],
      ['debug', 'debug'],
    ],
  );
});

test('a level that is set while a link is prepared reaches it with the next call', async () => {
  const { at, levels, sent } = levelling(LOGGING);
  await using _ = at;
  const { session } = at.session({ logLevel: 'error' });
  const link = await at.upstream('up').link(session);
  await levels.set(link);
  session.logLevel = 'debug';
  await levels.setAll(session);
  await levels.ensure(session, link, 'debug');
  assert.deepEqual(sent, ['error', 'debug']);
});

test('an upstream without log messages gets no level', async () => {
  const { at, levels, sent } = levelling({});
  await using _ = at;
  const { session } = at.session({ logLevel: 'debug' });
  await levels.set(await at.upstream('up').link(session));
  assert.deepEqual(sent, []);
});

test('a level that an upstream refuses is logged, and is no failure', async () => {
  const { at, levels } = levelling(LOGGING, () => Promise.reject(new Error('refused')));
  await using _ = at;
  const { session } = at.session({ logLevel: 'debug' });
  await levels.set(await at.upstream('up').link(session));
  assert.ok(at.lines.some((line) => line.includes('log level not set')));
});

test('an upstream that does not answer its level delays nobody longer than a second', async (t) => {
  const time = stopTime(t);
  const { at, levels } = levelling(LOGGING, () => new Promise(() => undefined));
  await using _ = at;
  const { session } = at.session({ logLevel: 'debug' });
  session.links.set('up', await at.upstream('up').link(session));
  const setting = levels.setAll(session);
  time.pass(PREPARE_MS);
  await setting;
});
