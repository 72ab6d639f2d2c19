/** Tests that a replica of this version and one of an older version understand each other's requests, records and handles. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { HANDLE_KINDS } from '../support/handles/kinds.ts';
import { HandleTrial } from '../support/handles/trial.ts';
import { NO_HISTORY, OLDER_COMMIT, OlderVersion } from '../support/older-version.ts';
import { MISSING, Replicas } from '../support/replicas.ts';

const TIMEOUT = { timeout: 120_000 };
const SKIP = MISSING ?? NO_HISTORY;
const SKIPPED = SKIP === undefined ? {} : { skip: SKIP };

suite(`a replica of this version beside one of ${OLDER_COMMIT.slice(0, 7)}`, SKIPPED, () => {
  const stack = new AsyncDisposableStack();
  let trial: HandleTrial;
  let origins: readonly string[];
  before(async () => {
    const older = stack.use(await OlderVersion.checkout());
    trial = stack.use(await HandleTrial.start());
    const replicas = stack.use(await Replicas.start(2, trial.config, {}, 'in turn', [older.program]));
    await replicas.untilAllKnown();
    origins = replicas.each.map(({ url }) => url);
    await trial.signIn(origins);
  });
  after(() => stack[Symbol.asyncDispose]());

  for (const kind of HANDLE_KINDS) {
    for (const [from, direction] of ['older to newer', 'newer to older'].entries()) {
      // R10
      test(`${kind.name}, ${direction}`, TIMEOUT, async () => {
        const [owner] = trial.actors;
        assert.ok(owner !== undefined);
        owner.pin(origins[from]);
        const handle = await kind.make(owner, trial.upstreams);
        owner.pin(origins[1 - from]);
        await handle.assertWorks();
      });
    }
  }
});
