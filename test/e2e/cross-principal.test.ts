/** Tests that no principal can use what another one has: five principals, and every kind of handle. */
import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { after, before, suite, test } from 'node:test';
import { startGateway } from '../support/gateway.ts';
import { HANDLE_KINDS } from '../support/handles/kinds.ts';
import { HandleTrial } from '../support/handles/trial.ts';
import { MISSING, Replicas } from '../support/replicas.ts';

const TIMEOUT = { timeout: 120_000 };
const HANDLES = new URL('../../src/gateway/handles/', import.meta.url);
/** Stored by the gateway, and never given to a client. */
const KEPT = 'attachment';
/** Principals that own handles at the replicas. All five use them. */
const OWNERS = 2;

const sorted = (texts: Iterable<string | undefined>) => [...texts].map(String).toSorted((a, b) => a.localeCompare(b));
const sealedKinds = HANDLE_KINDS.flatMap(({ sealed }) => (sealed === undefined ? [] : [sealed]));

// SEC-10
test('every kind of sealed handle is in the table of kinds', async () => {
  const sealer = await readFile(new URL('sealer.ts', HANDLES), 'utf8');
  const [, union = ''] = /export type Purpose = ([^;]+);/.exec(sealer) ?? [];
  const purposes = [...union.matchAll(/'(\w+)'/g)].map(([, name]) => name);
  const inTable = new Set([...sealedKinds.map((kind) => kind.split('/')[0]), KEPT]);
  assert.deepEqual(sorted(purposes), sorted(inTable));
  const states = await readFile(new URL('request-state.ts', HANDLES), 'utf8');
  const kinds = [...states.matchAll(/\{\s*readonly kind: '(\w+)'/g)].map(([, kind]) => `state/${kind}`);
  assert.deepEqual(sorted(kinds), sorted(sealedKinds.filter((kind) => kind.startsWith('state/'))));
  // A new file is a new kind of handle, or belongs to one above.
  const files = ['attachments.ts', 'compact-jwe.ts', 'request-state.ts', 'sealer.ts', 'task-ids.ts', 'task-marks.ts'];
  assert.deepEqual(sorted(await readdir(HANDLES)), files);
});

suite('one process', () => {
  const stack = new AsyncDisposableStack();
  let trial: HandleTrial;
  before(async () => {
    trial = stack.use(await HandleTrial.start());
    const { url } = stack.use(await startGateway(trial.config));
    await trial.signIn([url]);
  });
  after(() => stack[Symbol.asyncDispose]());

  for (const kind of HANDLE_KINDS) {
    // SEC-10
    test(`the ${kind.name} of another principal is unknown`, TIMEOUT, () => trial.try(kind));
  }

  // SEC-10
  test('no stream has messages of others, and all sealed kinds were tried', () => {
    trial.assertNothingLeaked();
    const expected = new Set(sealedKinds.map((kind) => kind.split('/')[0]));
    assert.deepEqual(sorted(trial.purposes), sorted(expected));
  });
});

suite('two replicas', MISSING === undefined ? {} : { skip: MISSING }, () => {
  const stack = new AsyncDisposableStack();
  let trial: HandleTrial;
  before(async () => {
    trial = stack.use(await HandleTrial.start());
    const replicas = stack.use(await Replicas.start(2, trial.config));
    await replicas.untilAllKnown();
    await trial.signIn(replicas.each.map(({ url }) => url));
  });
  after(() => stack[Symbol.asyncDispose]());

  for (const kind of HANDLE_KINDS) {
    // SEC-10
    test(`the ${kind.name} of another is unknown to replicas`, TIMEOUT, () =>
      trial.try(kind, trial.actors.slice(0, OWNERS)),
    );
  }

  // SEC-10
  test('no stream of a replica has messages of others', () => trial.assertNothingLeaked());
});
