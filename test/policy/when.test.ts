import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FAILS, FALSE, TRUE, UNKNOWN } from '../../src/policy/conditions/outcomes.ts';
import * as fc from '../support/fast-check.ts';
import { type Variables, type When, whenCompiler } from '../../src/policy/conditions/when.ts';

const compile = whenCompiler([
  { name: 'dept', path: 'dept', type: 'string' },
  { name: 'roles', path: 'realm_access.roles', type: 'list' },
  { name: 'level', path: 'level', type: 'number' },
]);

const EARLY: Variables = {
  principal: { label: 'ada', groups: ['eng'], scopes: [] },
  claims: { dept: 'eng', roles: ['dev'] },
  client: {},
  endpoint: '',
  upstream: 'github',
  tool: { kind: 'tool', name: 'get', readOnly: true, destructive: false, idempotent: false, openWorld: true },
};

function when(text: string): When {
  const made = compile(text);
  if (typeof made === 'string') assert.fail(made);
  return made;
}

function at(text: string, args: Readonly<Record<string, unknown>>): number {
  return when(text).outcomes({ ...EARLY, args, now: new Date('2026-01-31T12:00:00Z') }, { values: 1, chars: 1 });
}

const EARLY_CASES = [
  { text: 'claims.dept == "eng"', expected: TRUE },
  { text: '"dev" in claims.roles', expected: TRUE },
  { text: 'claims.level > 3.0', expected: FAILS },
  { text: '!has(claims.level)', expected: TRUE },
  { text: 'args.a == 1', expected: UNKNOWN },
  { text: 'now > timestamp("2020-01-01T00:00:00Z")', expected: UNKNOWN },
  { text: 'claims.dept == "hr" && args.a == 1', expected: FALSE },
  { text: 'claims.dept == "eng" && args.a == 1', expected: UNKNOWN },
  { text: 'claims.dept == "eng" || args.a == 1', expected: TRUE },
  { text: 'claims.level > 3.0 && args.a == 1', expected: FALSE | FAILS },
  { text: '!(claims.level > 3.0 && args.a == 1)', expected: TRUE | FAILS },
  { text: 'claims.dept == "hr" ? args.a == 1 : false', expected: FALSE },
  { text: 'tool.readOnly && upstream == "github"', expected: TRUE },
  { text: '!(tool.readOnly)', expected: FALSE },
  { text: '!(tool.destructive || tool.idempotent) && args.a == 1', expected: UNKNOWN },
  { text: '(tool.readOnly || tool.idempotent) && (tool.openWorld || tool.idempotent)', expected: TRUE },
  { text: '(tool.destructive || tool.idempotent) && (tool.openWorld) && args.a == 1', expected: FALSE },
  { text: 'args.a == 1 || (upstream).startsWith(("git")) && "eng" in (principal.groups)', expected: TRUE },
  { text: 'args.a == 1 && (upstream + ("x")) == ("a\\n\\u00e9" + ("y"))', expected: FALSE },
  { text: '!(1.00000000001 > 1.0)', expected: FALSE },
  { text: '!(claims.dept == "hr")', expected: TRUE },
  { text: 'claims.dept == "eng" && ("dev" in claims.roles || claims.level > 3.0)', expected: TRUE },
  { text: '(claims.dept == "hr" || claims.dept == "eng") && args.a == 1', expected: UNKNOWN },
  { text: 'args.a == 1 && !(claims.dept == "eng")', expected: FALSE },
  { text: '(((claims.dept))) == ("(" + ")") && args.a == 1', expected: FALSE },
  { text: "(claims.dept == ')\\\\\\'(' || (claims.dept == r'''(')(''')) && args.a == 1", expected: FALSE },
  { text: '(claims.dept == // ) of (all)\n ("hr")) && args.a == 1', expected: FALSE },
];

const TIMED_CASES = [
  { text: 'now.getHours() >= 8 && now.getHours() < 18', expected: FALSE },
  { text: 'now.getHours() >= 20 && args.a == 1', expected: UNKNOWN },
  { text: 'now.getHours() < 18 && args.a == 1', expected: FALSE },
  { text: '!(now.getHours() < 18) || args.a == 1', expected: TRUE },
  { text: 'args.t == now.getHours()', expected: UNKNOWN },
  { text: 'claims.level > 3.0 && now.getHours() == 22', expected: FAILS },
];

// P-002
for (const { text, expected } of TIMED_CASES) {
  test(`at night and without arguments, ${text}`.slice(0, 78), () =>
    assert.equal(when(text).outcomes({ ...EARLY, now: new Date('2026-01-31T22:00:00Z') }), expected),
  );
}

for (const { text, expected } of EARLY_CASES) {
  test(`before a call, ${text.replace('\n', ' ')}`.slice(0, 78), () =>
    assert.equal(when(text).outcomes(EARLY), expected),
  );
}

/** Returns conditions in which `args.a` is a number and `args.b` a text, with parentheses at any place. */
function conditions(): fc.Arbitrary<string> {
  const leaves = fc.constantFrom(
    'claims.dept == "eng"',
    'claims.dept == ")("',
    'claims.level > 3.0',
    '"dev" in claims.roles',
    'args.a == 1.0',
    'args.b == "("',
    '(args.b) + r"\\)(" != (b"" == b"\\x29" ? "" : "(\\\\)(")',
    '-(args.a) in [(1.0) * 2.0 - 3.0, 5.0]',
    'args.b in {"(": {"": 1}[""]}',
    '[args.a, args.a].exists(x, x != 0.0 && (1.0 == x))',
    'has(claims.dept) && [[args.b, args.b]] == [["(", "("]]',
    'size("(" + claims.dept) > (1 + 2) * 3',
    '(1 + size(claims.dept)) * 2 == (8)',
  );
  const { tree } = fc.letrec<{ readonly tree: string }>((tie) => ({
    tree: fc.oneof(
      { maxDepth: 4 },
      leaves,
      tie('tree').map((one) => `(${one})`),
      tie('tree').map((one) => `!(${one})`),
      fc.tuple(tie('tree'), tie('tree')).map(([a, b]) => `${a} && ${b}`),
      fc.tuple(tie('tree'), tie('tree')).map(([a, b]) => `( ${a} || ${b})`),
      fc.tuple(tie('tree'), tie('tree'), tie('tree')).map(([a, b, c]) => `((${a}) ? ${b} : (${c} ))`),
    ),
  }));
  return tree;
}

// The texts of parts have the parentheses of the whole.
test('a condition has the outcome of the whole, wherever its parentheses are', () => {
  let known = 0;
  fc.assert(
    fc.property(conditions(), fc.constantFrom(0, 1), (text, a) => {
      const made = compile(text);
      if (typeof made === 'string') return assert.match(made, /Exceeded/, text);
      const early = made.outcomes(EARLY);
      const whole = at(text, { a });
      assert.equal(early & whole, whole, text);
      if (!made.readsArgs) assert.equal(early, whole, text);
      if (early !== UNKNOWN) known++;
    }),
    { numRuns: 2_000 },
  );
  assert.ok(known > 500, `${known} conditions`);
});

test('arguments of the right types are compared as values of the condition are', () => {
  fc.assert(
    fc.property(conditions(), fc.constantFrom('0.0', '1.0'), fc.constantFrom('(', ')'), (text, a, b) => {
      const plain = compile(text.replaceAll('args.a', a).replaceAll('args.b', `"${b}"`));
      const late = compile(text);
      if (typeof plain === 'string') return assert.match(plain, /Exceeded/, text);
      if (typeof late === 'string') return assert.match(late, /Exceeded/, text);
      assert.equal(
        late.outcomes({ ...EARLY, args: { a: Number(a), b }, now: new Date() }),
        plain.outcomes(EARLY),
        text,
      );
    }),
    { numRuns: 1_000 },
  );
});

const CALL_CASES = [
  { text: 'args.a == 1', args: { a: 1 }, expected: TRUE },
  { text: 'args.a == 1', args: { a: '1' }, expected: FAILS },
  { text: 'args.a == 1', args: { a: true }, expected: FAILS },
  { text: 'args.a != true', args: { a: 'true' }, expected: FAILS },
  { text: 'true == args.a', args: { a: 1 }, expected: FAILS },
  { text: 'args.a == true', args: { a: null }, expected: FAILS },
  { text: 'args.a == null', args: { a: null }, expected: TRUE },
  { text: 'args.a != null && args.a == 1', args: { a: 1 }, expected: TRUE },
  { text: 'args.a != null && args.a == 1', args: { a: null }, expected: FALSE },
  { text: 'args.a == args.b', args: { a: 1, b: '1' }, expected: FAILS },
  { text: 'args.a == claims.dept', args: { a: 1 }, expected: FAILS },
  { text: '!(args.a in [4, 5])', args: { a: '5' }, expected: FAILS },
  { text: 'args.a in [4, 5]', args: { a: 5 }, expected: TRUE },
  { text: 'args.a in [4, 5]', args: { a: 6 }, expected: FALSE },
  { text: 'args.a in []', args: { a: 6 }, expected: FALSE },
  { text: 'args.a in {5: true}', args: { a: '5' }, expected: FAILS },
  { text: 'args.a in {5: true}', args: { a: 5 }, expected: TRUE },
  { text: '7 in args.ids', args: { ids: ['a', 7] }, expected: TRUE },
  { text: '7 in args.ids', args: { ids: ['7', 8] }, expected: FAILS },
  { text: '7 in args.ids', args: { ids: '[7]' }, expected: FAILS },
  { text: '"a" in args.map', args: { map: { a: 1 } }, expected: TRUE },
  { text: '5 in args.map', args: { map: { 5: 1 } }, expected: FAILS },
  { text: 'args.ids == [7]', args: { ids: '[7]' }, expected: FAILS },
  { text: 'args.ids == [7, 8]', args: { ids: [7, '8'] }, expected: FAILS },
  { text: 'args.ids == [7]', args: { ids: [7, 8] }, expected: FALSE },
  { text: 'args.opts == {"a": {"b": 1}}', args: { opts: { a: { b: 1 } } }, expected: TRUE },
  { text: 'args.opts == {"a": {"b": 1}}', args: { opts: { a: { b: '1' } } }, expected: FAILS },
  { text: 'args.opts == {"a": 1}', args: { opts: { b: 1 } }, expected: FALSE },
  { text: 'args.ids.exists(x, x == 7)', args: { ids: ['7'] }, expected: FAILS },
  { text: 'args.ids.exists(x, x == 7)', args: { ids: ['7', 7] }, expected: TRUE },
  { text: 'args.ids.all(x, !has(x.admin))', args: { ids: [{ a: 1 }] }, expected: TRUE },
  { text: 'args.ids.all(x, !has(x.admin))', args: { ids: ['{"admin":true}'] }, expected: FAILS },
  { text: 'has(args.opts.admin)', args: { opts: { admin: null } }, expected: TRUE },
  { text: 'has(args.opts.admin)', args: { opts: {} }, expected: FALSE },
  { text: 'has(args.opts.admin)', args: { opts: '{"admin":true}' }, expected: FAILS },
  { text: 'has(args.opts.admin)', args: { opts: null }, expected: FAILS },
  { text: 'has(args.opts.admin)', args: { opts: [{ admin: 1 }] }, expected: FAILS },
  { text: 'size(args.ids + []) == 0', args: { ids: '[]' }, expected: FAILS },
  { text: 'size(args.ids + []) == 1', args: { ids: [7] }, expected: TRUE },
  { text: 'args.a == 0', args: { a: -0 }, expected: TRUE },
  { text: 'now == args.a', args: { a: '2026-01-31T12:00:00Z' }, expected: FAILS },
  { text: 'args.a == 1', args: {}, expected: FAILS },
  { text: 'args.toString == "x"', args: {}, expected: FAILS },
  { text: 'args.a == 9007199254740991', args: { a: Number.MAX_SAFE_INTEGER }, expected: TRUE },
  { text: 'args.path.startsWith("/pub/")', args: { path: '/pub/x' }, expected: TRUE },
  { text: 'args.path.startsWith("/pub/")', args: { path: ['/pub/x'] }, expected: FAILS },
  { text: 'args.ids.all(x, x < 10)', args: { ids: [1, 2] }, expected: TRUE },
  { text: 'now.getHours() == 12', args: {}, expected: TRUE },
  { text: '!(1.00000000001 > 1.0)', args: {}, expected: FALSE },
  { text: '!(tool.readOnly || args.a == 1)', args: { a: 1 }, expected: FALSE },
];

for (const { text, args, expected } of CALL_CASES) {
  test(`${text} with ${JSON.stringify(args)}`.slice(0, 78), () => assert.equal(at(text, args), expected));
}

const REFUSED = [
  { text: 'args.p.matches("a+")', why: /matches\(\) is not supported/ },
  { text: 'args.p.split(",").size() > 1', why: /split\(\) is not supported/ },
  { text: 'cel.bind(x, args.p, x == "a")', why: /bind\(\) is not supported/ },
  { text: 'args.a.contains(args.b)', why: /contains\(\) with a text of args/ },
  { text: 'args.a.all(x, "abc".contains(x))', why: /contains\(\) with a text of args/ },
  { text: 'duration(args.a) < duration("1h")', why: /duration\(\) of anything but a text/ },
  { text: 'args.a.duration()', why: /duration|no matching/ },
  { text: 'timestamp(args.a) < now', why: /timestamp\(\) of a text of args/ },
  { text: 'args.a.all(x, timestamp(x) < now)', why: /timestamp\(\) of a text of args/ },
  { text: 'args.a.all(x, args.b.all(y, x == y))', why: /a macro inside a macro/ },
  { text: 'args[args.k] == 1', why: /an index that reads args/ },
  { text: 'args.id == 1234567890123456789', why: /^has an integer beyond 9007199254740991, .*\(at character 12\)$/ },
  { text: 'args.id in [-9007199254740992]', why: /an integer beyond .*\(at character 14\)/ },
  { text: 'args.id == 9007199254740992u', why: /an unsigned number/ },
  { text: 'args.n in [4u, 5u]', why: /^has an unsigned number; write it without u \(at character 12\)$/ },
  { text: 'claims.tenant == "a"', why: /No such key: tenant/ },
  { text: 'true || has(claims.tenant)', why: /^No such key: tenant \(at character 13\)$/ },
  { text: '!has(principal.isuer)', why: /No such key: isuer/ },
  { text: 'args.a.exists(x, x == 1 && has(tool.readonly))', why: /No such key: readonly/ },
  { text: 'has(upstream.id)', why: /Cannot index/ },
  { text: 'claims.dept > 3', why: /no such overload/ },
  { text: 'nobody == 1', why: /Unknown variable/ },
  { text: 'claims.dept', why: /must be true or false/ },
  { text: 'claims.dept ==', why: /./ },
  { text: `"${'x'.repeat(5_000)}" == claims.dept`, why: /longer than/ },
  { text: `${'('.repeat(60)}true${')'.repeat(60)}`, why: /depth|nested|Exceeded/i },
];

for (const { text, why } of REFUSED) {
  test(`refused at load: ${text}`.slice(0, 78), () => {
    const made = compile(text);
    assert.match(typeof made === 'string' ? made : 'accepted', why);
  });
}

test('a macro fails on more than 1000 values or 64 KiB of arguments', () => {
  const macro = when('args.ids.all(x, x < 10)');
  const late = { ...EARLY, args: { ids: [1] }, now: new Date() };
  assert.equal(macro.outcomes(late, { values: 1_000, chars: 65_536 }), TRUE);
  assert.equal(macro.outcomes(late, { values: 1_001, chars: 10 }), FAILS);
  assert.equal(macro.outcomes(late, { values: 2, chars: 65_537 }), FAILS);
});

const LONG = 400_000;
const SLOW_CASES = [
  'args.s.trim() == "a"',
  'args.s.lowerAscii() == "a"',
  'args.s.contains("aaab")',
  'int(args.s) == 1',
  'double(args.s) == 1.0',
  'bool(args.s)',
  'size(args.s) > 1',
  'args.s.substring(1) == "a"',
];

for (const text of SLOW_CASES) {
  // A condition of more than linear time would not end within the time limit of the file.
  test(`long arguments do not keep ${text} busy`, { timeout: 120_000 }, () => {
    for (const s of [
      '1h'.repeat(LONG),
      `a${' '.repeat(LONG)}a`,
      '1'.repeat(LONG),
      '-'.repeat(LONG),
      'aaa'.repeat(LONG),
    ]) {
      assert.notEqual(at(text, { s }), 0);
    }
  });
}
