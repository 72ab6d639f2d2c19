/** Servers whose SDK supports both eras, with the default config: each client is served in its own era. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startSetting } from './setting.ts';

const SESSION = { client: 'typescript1', mode: 'legacy' } as const;
const MODERN = { client: 'typescript2', mode: 'modern' } as const;

/** Go's questions by result are left out, because its own client does not support them either. */
const DUAL: readonly { id: string; asksByResult: boolean }[] = [
  { id: 'python2-stdio', asksByResult: true },
  { id: 'python2-http', asksByResult: true },
  { id: 'fastmcp4-stdio', asksByResult: true },
  { id: 'fastmcp4-http', asksByResult: true },
  { id: 'typescript2-stdio', asksByResult: true },
  { id: 'typescript2-http', asksByResult: true },
  { id: 'go-stdio', asksByResult: false },
];

for (const { id, asksByResult } of DUAL) {
  // N-40
  test(`${id} asks a legacy and a modern client at the same time`, async () => {
    await using setting = await startSetting(id);
    await using session = await setting.connect(SESSION, ['elicitation', 'sampling', 'roots']);
    await using modern = await setting.connect(MODERN, ['elicitation', 'sampling', 'roots']);
    assert.equal(session.revision, '2025-11-25');
    assert.equal(modern.revision, '2026-07-28');
    const asked = async (client: typeof session, tool: string) => (await client.call(tool)).text;
    const [name, byResult, sample, echo] = await Promise.all([
      asked(session, 'ask_name'),
      asksByResult ? asked(modern, 'ask_name_by_result') : 'Hello, Ada',
      asked(session, 'ask_model'),
      modern.call('echo', { text: 'meanwhile' }),
    ]);
    assert.deepEqual(
      [name, byResult, sample, echo.text],
      ['Hello, Ada', 'Hello, Ada', 'The model says Paris', 'meanwhile'],
    );
  });
}

for (const id of ['python2-stdio', 'python2-http', 'typescript2-stdio', 'typescript2-http']) {
  // One server and one gateway for all three, since their start takes longer than the tests.
  // N-40
  test(`${id} serves each client in its own era`, async (t) => {
    await using setting = await startSetting(id);

    // N-40
    await t.test(`${id} gets requests in the era of each client`, async () => {
      await using modern = await setting.connect(MODERN);
      await using session = await setting.connect(SESSION);
      const eras = [(await modern.call('era')).text, (await session.call('era')).text];
      assert.match(eras.join(' '), /^(modern|2026-07-28) (legacy|2025-11-25)$/);
    });

    // N-40
    await t.test(`the log of ${id} reaches a session that has set no level`, async () => {
      await using session = await setting.connect(SESSION);
      await session.call('log');
      await session.waitForNotification('notifications/message', 10_000);
    });

    // N-40
    await t.test(`two sessions of ${id} have separate counts`, async () => {
      await using first = await setting.connect(SESSION);
      await using second = await setting.connect(SESSION);
      const counts = [];
      for (const client of [first, second, first, second]) counts.push((await client.call('count')).text);
      assert.deepEqual(counts, ['1', '1', '2', '2']);
    });
  });
}
