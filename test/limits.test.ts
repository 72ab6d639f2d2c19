import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { createMetrics } from '../src/telemetry/metrics.ts';

const ROOT = join(import.meta.dirname, '..');
const rows = readFileSync(join(ROOT, 'docs/limits.md'), 'utf8')
  .split('\n')
  .filter((line) => line.startsWith('| `'))
  .map((line) => line.split('|').map((cell) => cell.trim()))
  .map(([, name = '', , scope = '', beyond = '', metric = '']) => ({
    name: name.replaceAll('`', ''),
    scope,
    beyond,
    metric: metric.replaceAll('`', '').replace(/\{.*/, ''),
  }));

// REL-38
test('docs/limits.md has scope, effect and metric for each bound', async () => {
  const text = await createMetrics('0').text();
  for (const { name, scope, beyond, metric } of rows) {
    assert.ok(scope !== '' && beyond !== '', `${name}: scope and consequence`);
    const shown = metric === '' ? 'linkspan_limit_reached_total' : metric;
    assert.match(text, new RegExp(`^# TYPE ${shown} `, 'm'), `${name}: no such metric: ${shown}`);
  }
});

test('every fixed bound has a test that goes beyond it', () => {
  const tests = globSync('test/**/*.ts', { cwd: ROOT }).map((file) => readFileSync(join(ROOT, file), 'utf8'));
  const shown = (name: string): boolean => tests.some((source) => source.includes(`limit ${name}`));
  assert.deepEqual(
    rows.map(({ name }) => name).filter((name) => !shown(name)),
    [],
  );
});

/** Folders whose bounds need no row. */
const WITHOUT_ROWS = new Map([
  ['config', 'what an operator writes'],
  ['lock', 'what an operator writes'],
  ['cli', 'what an operator gets'],
  ['operator', 'what an operator gets'],
  ['telemetry', 'how much of a text or name the log and metrics show'],
  ['audit', 'how much of a text a record shows, and what an operator verifies'],
]);

/** Other bounds that need no row, by the reason: nobody outside notices that they are reached, or something else counts it. */
const NOTICED_BY_NOBODY: Readonly<Record<string, readonly string[]>> = {
  'cuts a text or list for people': [
    'catalog/items/repair.ts MAX_PATHS',
    'catalog/offer.ts MAX_NAME_CHARS',
    'catalog/pinned-offer.ts MAX_WHY_CHARS',
    'compose/admin/admin-catalog.ts MAX_ITEMS',
    'compose/admin/admin-clients.ts MAX_ITEMS',
    'compose/lists/list-gaps.ts MAX_PROBLEMS',
    'compose/lists/unmatched-globs.ts MAX_LOGGED',
    'compose/upstream-status.ts MAX_DIFFERENCES',
    'compose/upstream-status.ts MAX_REASON_CHARS',
    'credentials/issuer-metadata.ts MAX_NAME_CHARS',
    'credentials/token-request.ts MAX_DESCRIPTION_CHARS',
    'gateway/calls/availability.ts MAX_NAMED',
    'gateway/clients/seen-clients.ts MAX_CAPABILITIES',
    'gateway/clients/seen-clients.ts MAX_TEXT_CHARS',
    'gateway/lists/pinned-offers.ts MAX_EXPLAINED',
    'gateway/lists/pinned-offers.ts MAX_EXPLAINED_CHARS',
    'gateway/lists/pinned-offers.ts MAX_RETURNED',
    'gateway/lists/pinned-offers.ts MAX_TEXT_CHARS',
    'gateway/lists/problem-reports.ts MAX_LOGGED',
    'gateway/questions/safe-question.ts MAX_HOST_CHARS',
    'protocol/completion.ts MAX_VALUES',
    'protocol/framing/lines.ts MAX_CUT_BYTES',
    'upstream/http/http-failure.ts MAX_MESSAGE_CHARS',
    'upstream/http/http-headers.ts MAX_SCOPES_CHARS',
  ],
  'keeps what costs little to make again': [
    'auth/jwks.ts ABSENT_LIMIT',
    'auth/verified-tokens.ts MAX_KEPT_CHARS',
    'gateway/clients/session.ts MAX_STEPS',
    'gateway/handles/sealer.ts MAX_MISSING',
    'gateway/lists/built-catalogs.ts MAX_CATALOGS',
    'gateway/lists/list-fetches.ts MAX_FAILURES',
    'gateway/lists/list-refresher.ts MAX_SLOW',
    'gateway/lists/stored-offers.ts MAX_ABSENT',
    'gateway/questions/sampling-budget.ts MAX_QUESTIONS',
    'http1/response.ts MAX_KEPT_HEAD_BYTES',
    'json/text-cache.ts MAX_CHARS',
    'json/text-cache.ts MAX_RECENT',
    'json/text-cache.ts MAX_TEXTS',
    'protocol/framing/lines.ts MAX_REUSED_BYTES',
    'replicas/forwarded-head.ts MAX_KEPT',
    'replicas/forwarded-head.ts MAX_KEPT_CHARS',
    'replicas/replica-owners.ts MAX_CACHED',
    'store/memory/rate-table.ts MAX_LIMITERS',
    'store/redis/sealed-box.ts MAX_DERIVED',
    'upstream/quota/fair-pool.ts INACTIVE_LIMIT',
  ],
  'a longer text has no valid form, so it is answered like every invalid one': [
    'auth/jwt.ts MAX_KID_CHARS',
    'downstream/admission/client-address.ts MAX_PROXIES',
    'downstream/streams/event-id.ts MAX_CHARS',
    'downstream/streams/event-id.ts MAX_REQUEST_CHARS',
    'http1/chunks.ts MAX_SIZE_DIGITS',
    'mark-runs.ts MAX_MARKS',
    'policy/conditions/arguments.ts MAX_JUDGED_CHARS',
    'catalog/resources/uri-form.ts MAX_CHARS',
    'catalog/resources/uri-form.ts MAX_DECODINGS',
    'catalog/resources/uri-form.ts MAX_DOMAIN_CHARS',
    'upstream/http/endpoint-hint.ts MAX_LOCATION_CHARS',
    'upstream/http/sse.ts MAX_ENDPOINT_CHARS',
    'protocol/json-schema.ts MAX_READ_CHARS',
    'policy/conditions/when.ts MAX_CHARS',
    'policy/conditions/when.ts MAX_MACRO_CHARS',
    'policy/conditions/when.ts MAX_MACRO_VALUES',
  ],
  'from the gateway itself, its other processes, its files or its system': [
    'compose/listener.ts MAX_PORT',
    'compose/workers/socket-dir.ts MAX_PATH_BYTES',
    'compose/workers/worker-process.ts MAX_LINE_CHARS',
    'gateway/exchange/owners.ts MAX_HOPS',
    'load/memory-meter.ts MAX_LIMIT_BYTES',
    'replicas/frames.ts MAX_EXCHANGE',
    'replicas/frames.ts MAX_PAYLOAD_BYTES',
    'replicas/internal-server.ts MAX_CONNECTIONS',
    'store/api-key-store.ts MAX_KEYS',
    'store/disk/api-key-file.ts LIMIT_BYTES',
    'store/disk/first-key.ts FILE_LIMIT_BYTES',
    'store/disk/key-store.ts FILE_LIMIT_BYTES',
    'store/disk/last-good-file.ts FILE_LIMIT_BYTES',
    'store/disk/operator-file.ts FILE_LIMIT_BYTES',
    'store/disk/state-lock.ts MAX_ADDRESS_BYTES',
    'store/key-store.ts MAX_KEYS',
    'store/redis/breaker.ts MOST_FAILURES',
    'upstream/stdio/process-guard.ts MAX_DEATHS',
  ],
  'begins other work, and nothing is lost or refused': [
    'credentials/credential-cache.ts MAX_TURNS',
    'gateway/exchange/input-rounds.ts MAX_NAMED',
    'store/disk/journal.ts MAX_WAITING_BYTES',
    'store/redis/event-store.ts MAX_VICTIMS',
    'upstream/listing-retries.ts MAX_KINDS',
  ],
  'another page or metric shows it': [
    // `gateway.limits.messageTotal`
    'compose/transports.ts MAX_RECEIVING_BYTES',
    // docs/limits.md, `gateway.limits.message`
    'protocol/framing/oversized-message.ts MOST_TIMES',
    // `linkspan_internal_refused_total`
    'replicas/incoming-channel.ts MAX_EXCHANGES',
  ],
};

/** A constant that bounds something: a number whose name says so. Times are no bounds on what somebody sends. */
const BOUND = /^(?:export )?const ((?:[A-Z]+_)*(?:MAX|MOST|LIMIT|CAPACITY)(?:_[A-Z]+)*)(?:: number)? = (?=[\d(])/gm;

test('a bound outside of src/limits.ts has a reason to have no row', () => {
  const files = globSync('**/*.ts', { cwd: join(ROOT, 'src') }).filter((file) => file !== 'limits.ts');
  const found = files
    .filter((file) => !WITHOUT_ROWS.has(file.split('/', 1)[0] ?? ''))
    .flatMap((file) => {
      const names = [...readFileSync(join(ROOT, 'src', file), 'utf8').matchAll(BOUND)].map(([, name = '']) => name);
      return names.filter((name) => !/_(?:MS|SECONDS)$/.test(name)).map((name) => `${file} ${name}`);
    });
  assert.deepEqual(found.toSorted(), Object.values(NOTICED_BY_NOBODY).flat().toSorted());
});
