/** Tests that each oracle finds a defect: a small gateway has one defect at a time. */
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Child } from '../support/child.ts';
import { marker } from '../support/leftovers.ts';
import { documentedStatuses } from './documented.ts';
import { Engine, type Finding } from './engine.ts';
import { type Category, postBytes } from './input.ts';
import { FlawedIssuerClient, ISSUER_FLAWS } from './flawed-issuer-client.ts';
import { checkIssuers } from './issuers.ts';
import { ORACLES, type OracleName } from './oracles.ts';
import { AuditTail, readGauge } from './readings.ts';
import { Spy } from './spy.ts';
import { GAUGE, type Subject } from './subject.ts';

const TIMEOUT = { timeout: 120_000 };
const PROGRAM = fileURLToPath(new URL('flawed-gateway.ts', import.meta.url));
const INPUTS = 30;
/** Enough of them to leak more than the oracle allows. */
const LEAKS = 60;
/** Enough for an answer of each kind. */
const ISSUER_INPUTS = 200;
/** Each of them keeps the processor busy for 2 s. */
const SLOW_INPUTS = 4;
/** The patience with a gateway that never answers. */
const SILENT_MS = 300; // subject

/** Calls that are right, calls that the policy denies, and calls with a forged session, in turns. */
const CALLS: Category = {
  name: 'calls',
  inputs: INPUTS,
  make: (dice, nonce, target) => {
    const kind = dice.below(3);
    const args = { nonce, ...(kind === 1 ? { deny: true } : {}), ...(dice.once(5) ? { marked: true } : {}) };
    const params = { name: 'leg__echo', arguments: args };
    const message = Buffer.from(JSON.stringify({ jsonrpc: '2.0', id: 7, method: 'tools/call', params }));
    const session = kind === 2 ? 'forged' : target.session;
    const wire = postBytes(target, [`mcp-session-id: ${session}`, `x-forwarded-host: ${nonce}.example`], message);
    return { nonce, shown: message.toString(), wire, message, isForged: kind === 2 };
  },
};

/** Starts the small gateway with a defect, or with none. */
async function flawed(flaw: string, dir: string): Promise<Subject> {
  const spy = await Spy.start('leg', 'legacy');
  const [gauge, audit] = [join(dir, 'gauge'), join(dir, 'audit.log')];
  await writeFile(audit, '');
  const env = { ...marker(), PATH: process.env['PATH'] ?? '', LINKSPAN_FUZZ_GAUGE: gauge };
  const child = await Child.start(process.execPath, [`--import=${GAUGE}`, PROGRAM, flaw, spy.url, audit], { env });
  const port = await child.waitForLine((line) => /^port (\d+)$/.exec(line)?.[1]);
  const tail = new AuditTail(audit);
  const operator = { operatorPort: Number(port), operatorKey: 'key' };
  const target = { port: Number(port), ...operator, key: 'key', session: 'good', token: () => '' };
  return {
    spies: [spy],
    get isRunning() {
      return child.running;
    },
    logs: () => child.logs(),
    gauge: () => readGauge(gauge),
    records: (nonce) => tail.until(nonce),
    target: () => Promise.resolve(target),
    [Symbol.asyncDispose]: async () => {
      await child.stop();
      await spy[Symbol.asyncDispose]();
    },
  };
}

async function findingsOf(flaw: string, inputs: number): Promise<readonly Finding[]> {
  const documented = documentedStatuses(await readFile(new URL('../../docs/errors.md', import.meta.url), 'utf8'));
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-flaw-'));
  try {
    await using subject = await flawed(flaw, dir);
    return await new Engine(subject, CALLS, 1, documented, flaw === 'silent' ? SILENT_MS : undefined).run(inputs);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

/** Oracles that see a consequence of a defect too. */
const ALSO: Partial<Record<OracleName, readonly OracleName[]>> = {
  // The end of the process cuts an answer.
  alive: ['framing'],
  // What it refused reached the upstream, with other arguments.
  rejected: ['operation', 'audit'],
  // What was recorded is what the client sent.
  operation: ['audit'],
};

// REL-37
test('a small gateway without a defect breaks no rule', TIMEOUT, async () => {
  assert.deepEqual(await findingsOf('none', INPUTS), []);
});

for (const oracle of ORACLES) {
  test(`the oracle "${oracle}" finds a defect, and no other does`, TIMEOUT, async () => {
    const findings = await findingsOf(oracle, oracle === 'memory' ? LEAKS : INPUTS);
    const found = new Set(findings.map((finding) => finding.oracle));
    assert.ok(found.has(oracle), JSON.stringify([...found]));
    const others = [...found].filter((name) => name !== oracle && ALSO[oracle]?.includes(name) !== true);
    assert.deepEqual(others, [], JSON.stringify(findings[0]));
  });
}

test('the oracle "foreign" finds a header that repeats a part of its input', TIMEOUT, async () => {
  const findings = await findingsOf('header', INPUTS);
  assert.deepEqual(new Set(findings.map(({ oracle }) => oracle)), new Set(['foreign']));
});

test('parts of the gateway that ask issuers break no rule', TIMEOUT, async () => {
  assert.deepEqual(await checkIssuers(1, ISSUER_INPUTS), []);
});

for (const flaw of ISSUER_FLAWS) {
  test(`the oracle "${flaw}" finds a defect of a client of issuers`, TIMEOUT, async () => {
    const findings = await checkIssuers(
      1,
      flaw === 'delay' ? SLOW_INPUTS : ISSUER_INPUTS,
      new FlawedIssuerClient(flaw),
      flaw === 'silent' ? SILENT_MS : undefined,
    );
    const found = new Set(findings.map(({ oracle }) => oracle));
    assert.ok(found.has(flaw), JSON.stringify(findings[0]));
  });
}

test('the statuses of docs/errors.md are found', () => {
  const page = '| `a-row` | −31001 | 401 | text |\n| 431 | text | 999 |\n| HTTP | x |\n';
  assert.deepEqual([...documentedStatuses(page)], [401, 431]);
});
