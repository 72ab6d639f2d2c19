import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Offer } from '../../../src/catalog/offer.ts';
import type { View } from '../../../src/catalog/view.ts';
import { explain } from '../../../src/compose/admin/explain.ts';
import { Gate } from '../../../src/gateway/exchange/gate.ts';
import { RawObject } from '../../../src/json/json.ts';
import { bare, catalogOf, tool, upstream, view } from '../../catalog/fixtures.ts';
import { accessOf, keyOf } from '../../policy/policies.ts';

const GATE = new Gate(
  accessOf({ all: { upstreams: undefined, tools: ['*'], resources: ['*'] } }, [{ roles: ['all'], anyone: true }]),
  [],
);

/** Returns the texts of the reasons, after effect and listing. */
function explained(shown: View, offers: Readonly<Record<string, Partial<Offer>>>, name: string): readonly string[] {
  const parts = { view: shown, catalog: catalogOf(shown, offers), gate: GATE, lifecycleOf: () => undefined };
  const kind = name.includes(':') ? 'resource' : 'tool';
  const { effect, isListed, reasons } = explain(parts, {
    principal: keyOf('ada'),
    view: '',
    kind,
    name,
    args: undefined,
  });
  const texts = reasons.filter(({ about }) => about !== 'rule').map(({ text }) => text);
  return [`${effect}, ${isListed ? 'listed' : 'not listed'}`, ...texts];
}

const DIFFERS = 'is withheld: it differs from the lock';
const LOCKED = {
  notes: {
    tools: [tool('read')],
    withheld: [
      { kind: 'tool', key: 'write', why: DIFFERS },
      { kind: 'resource', key: 'file:///a', why: DIFFERS },
      { kind: 'template', key: 'note:///{id}', why: DIFFERS },
    ],
  },
} as const;
const BY_LOCK = ['deny, not listed', `withheld: The tool ${DIFFERS}.`, 'the lock withholds it'];

test('explain names the lock as the reason for a tool that it withholds', () => {
  assert.deepEqual(explained(view([upstream('notes')]), LOCKED, 'notes__write'), BY_LOCK);
  assert.deepEqual(explained(view([upstream('notes')], { renames: { notes__write: 'put' } }), LOCKED, 'put'), BY_LOCK);
  const pinned = bare('notes', { onChange: 'quarantine' });
  assert.deepEqual(explained(view([pinned]), LOCKED, 'write'), BY_LOCK);
  const [listed] = explained(view([pinned]), LOCKED, 'read');
  assert.equal(listed, 'allow, listed');
});

test('explain does not take the own name of a withheld tool for its published one', () => {
  const [effect, list] = explained(view([upstream('notes')]), LOCKED, 'write');
  assert.deepEqual([effect, list], ['unknown, not listed', 'no upstream of this endpoint lists it']);
});

test('explain names the lock as the reason for a resource that it withholds', () => {
  const shown = view([upstream('notes')]);
  const byLock = ['deny, not listed', `withheld: The resource ${DIFFERS}.`, 'the lock withholds it'];
  assert.deepEqual(explained(shown, LOCKED, 'notes+file:///a'), byLock);
  assert.deepEqual(explained(shown, LOCKED, 'notes+note:///b'), ['unknown, not listed', 'the lock withholds it']);
});

test('explain names the fault of an item that is quarantined', () => {
  const broken = {
    notes: { tools: [RawObject.of({ name: 'write' })], resources: [RawObject.of({ uri: 'file:///a' })] },
  };
  const shown = view([upstream('notes')]);
  const [effect, ...reasons] = explained(shown, broken, 'notes__write');
  assert.equal(effect, 'deny, not listed');
  assert.match(reasons.join('\n'), /^quarantined: The tool has an "inputSchema" .*\nit is quarantined$/);
  assert.match(explained(shown, broken, 'notes+file:///a').join('\n'), /quarantined: The resource has no "name"/);
});

test('explain says that a tool is listed though a later one of its name is quarantined', () => {
  const [effect, list] = explained(
    view([bare('a'), bare('b')]),
    { a: { tools: [tool('x')] }, b: { tools: [tool('x')] } },
    'x',
  );
  assert.deepEqual([effect, list], ['allow, listed', 'upstream "a" lists it as "x"']);
});
