import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sealState, unsealState } from '../../../src/gateway/handles/request-state.ts';
import { Sealer } from '../../../src/gateway/handles/sealer.ts';
import type { Caller } from '../../../src/gateway/front/caller.ts';
import { RawObject } from '../../../src/json/json.ts';
import type { Request } from '../../../src/protocol/jsonrpc.ts';
import { LOCAL } from '../../../src/policy/principal.ts';
import { MemoryKeyStore } from '../../../src/store/memory/key-store.ts';

const CALLER = { principal: LOCAL, view: '', revision: '2026-07-28', capabilities: RawObject.EMPTY } as const;
const STATE = { kind: 'relay', upstream: 'up', inner: '"s"' } as const;

const callWith = (args: string) =>
  ({
    kind: 'request',
    id: '1',
    method: 'tools/call',
    params: RawObject.parse(`{"name":"t","arguments":${args}}`),
  }) as const;

//
test('a state is valid for equal arguments alone, however they are ordered', async () => {
  const sealer = await Sealer.open(new MemoryKeyStore());
  const opens = async (first: string, second: string): Promise<boolean> => {
    const state = await sealState(sealer, STATE, CALLER, callWith(first), Date.now() + 60_000);
    const opened = unsealState(sealer, JSON.stringify(state), CALLER, callWith(second));
    return await opened.then(
      () => true,
      () => false,
    );
  };
  assert.ok(await opens('{"a":1,"b":{"c":[2],"d":"x"}}', '{ "b": {"d":"x", "c":[2]}, "a":1 }'));
  for (const [first, second] of [
    ['{"n":9007199254740993}', '{"n":9007199254740992}'],
    ['{"n":1e400}', '{"n":null}'],
    ['{"n":[1,2]}', '{"n":[2,1]}'],
  ]) {
    assert.equal(await opens(first ?? '', second ?? ''), false, first);
  }
});

// SEC-08 X-014
test('a state is valid for its principal, endpoint and method alone', async () => {
  const sealer = await Sealer.open(new MemoryKeyStore());
  const request = callWith('{}');
  const state = await sealState(sealer, STATE, CALLER, request, Date.now() + 60_000);
  const opens = async (caller: Caller, asked: Request): Promise<boolean> =>
    await unsealState(sealer, JSON.stringify(state), caller, asked).then(
      () => true,
      () => false,
    );
  assert.equal(await opens(CALLER, request), true);
  assert.equal(await opens({ ...CALLER, view: 'up' }, request), false, 'another endpoint');
  assert.equal(await opens({ ...CALLER, principal: { ...LOCAL, key: 'bob' } }, request), false, 'another principal');
  assert.equal(await opens(CALLER, { ...request, method: 'prompts/get' }), false, 'another method');
});
