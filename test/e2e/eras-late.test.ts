/** Programs of both eras that answer late, so that the gateway tries both handshakes. Apart from the others, since each waits for seconds. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { initialize } from '../downstream/client.ts';
import { dual, modernCall, namesIn, sessionCall } from '../support/eras.ts';
import { modernResult } from '../support/modern-wire.ts';
import { openGateway } from '../support/open-gateway.ts';

const TIMEOUT = { timeout: 120_000 };

suite('a program of both eras', { concurrency: 1 }, () => {
  for (const { options, why } of [
    { options: ['late=2600', 'banner'], why: 'prints a line and answers late' },
    { options: ['late=5600'], why: 'prints nothing and answers late' },
    { options: ['late=2600', 'banner', 'stuck'], why: 'hangs at the second handshake' },
    { options: ['late=2600', 'banner', 'mute'], why: 'does not answer the second handshake' },
  ]) {
    // N-01
    test(`that ${why} serves a modern client as modern`, TIMEOUT, async () => {
      await using gateway = await openGateway({ up: dual(...options) });
      let listed: readonly string[] = [];
      // The first list is answered in bounded time with the tools that are known by then.
      while (listed.length === 0) listed = namesIn(await modernResult(gateway.url, 'tools/list'));
      assert.ok(listed.includes('up__only_modern'), listed.join(' '));
      assert.equal(await modernCall(gateway.url, 'up__era'), 'modern');
      assert.ok(!gateway.lines.some((line) => line.includes('did not start')));
    });
  }

  // N-01
  test('that answers late serves a session as legacy', TIMEOUT, async () => {
    await using gateway = await openGateway({ up: dual('late=5600') });
    const session = await initialize(gateway.url);
    assert.equal(await sessionCall(gateway.url, session, 'up__era'), 'legacy');
  });
});
