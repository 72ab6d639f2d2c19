import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type AskExternal, explainWith } from '../../../src/compose/admin/explain.ts';
import { Gate } from '../../../src/gateway/exchange/gate.ts';
import { catalogsOf, tool, upstream, view } from '../../catalog/fixtures.ts';
import { accessOf, keyOf } from '../../policy/policies.ts';

const GATE = new Gate(accessOf({ all: { upstreams: undefined } }, [{ roles: ['all'], anyone: true }]), []);

// P-012
test('explain shows the answer of a decision point as the last reason', async () => {
  const shown = view([upstream('notes')]);
  const offers = { notes: { tools: [tool('read')] } };
  const parts = {
    view: shown,
    catalogFor: catalogsOf(shown, offers),
    gate: GATE,
    lifecycleOf: () => undefined,
    hasCallersLists: () => false,
  };
  const query = { principal: keyOf('ada'), view: '', kind: 'tool', name: 'notes__read', args: { path: '/a' } } as const;
  const asked: unknown[] = [];
  const explained = async (answer: ReturnType<AskExternal>, name: string = query.name) => {
    const ask: AskExternal = ({ method, item, args }) => {
      asked.push([method, item.upstream, item.name, args]);
      return answer;
    };
    const { effect, reasons } = await explainWith(ask, parts, { ...query, name });
    return [effect, reasons.at(-1)?.about, reasons.at(-1)?.text];
  };
  const answers = [
    { outcome: 'allowed', why: 'the external decision allows it' },
    { outcome: 'denied', why: 'the external decision denies it' },
    { outcome: 'late', why: 'no answer within 100 ms' },
  ] as const;
  const [allowed, denied, late] = await Promise.all(answers.map((answer) => explained(Promise.resolve(answer))));
  assert.deepEqual(allowed, ['allow', 'external', 'the external decision allows it']);
  assert.deepEqual(denied, ['deny', 'external', 'the external decision denies it']);
  assert.deepEqual(late, ['deny', 'external', 'there is no external decision: no answer within 100 ms']);
  const offline = 'the external decision is not asked offline';
  assert.deepEqual(await explained('offline'), ['allow', 'external', offline]);
  assert.deepEqual(await explained(undefined), ['allow', 'decision', 'rule "all" allows it']);
  assert.deepEqual(asked[0], ['tools/call', 'notes', 'read', '{"path":"/a"}']);
  const before = asked.length;
  assert.deepEqual((await explained('offline', 'notes__absent')).slice(0, 2), ['unknown', 'list']);
  assert.equal(asked.length, before, 'it is asked only about what the rules allow');
});
