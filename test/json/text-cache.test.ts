import assert from 'node:assert/strict';
import { test } from 'node:test';

import { readEnvelope, withEnvelope } from '../../src/protocol/envelope.ts';
import { RawObject } from '../../src/json/json.ts';
import { parseClientMessage } from '../../src/protocol/jsonrpc.ts';
import { standardHeaders } from '../../src/protocol/framing/mcp-headers.ts';
import { RecentTexts, TextCache } from '../../src/json/text-cache.ts';
import { progressTokenOf } from '../../src/protocol/meta.ts';
import { LATEST_MODERN } from '../../src/protocol/revisions.ts';
import { collect } from '../support/used-bytes.ts';

function heapBytes(): number {
  collect();
  return process.memoryUsage().heapUsed;
}

test('a value is made once per text, except for long or per-request texts', () => {
  const cache = new TextCache<object>();
  const made = (text: string) => cache.of(text, (own) => ({ own }));
  assert.equal(made('a'), made('a'));
  assert.notEqual(made('a'), made('b'));
  assert.notEqual(made('"progressToken":1'), made('"progressToken":1'));
  assert.notEqual(made('x'.repeat(5_000)), made('x'.repeat(5_000)));
});

test('a known object is recognised at its position, a longer one is not', () => {
  const recent = new RecentTexts();
  const known = recent.keep('{"a":1}');
  assert.equal(recent.at('[{"a":1}]', 1), known);
  assert.equal(recent.at('[{"a":12}]', 1), undefined);
  for (const text of ['1', '"a"', '{"a":"\\u0061"}', '{"a":"\t"}']) recent.keep(text);
  for (const text of ['12', '"a"', '{"a":"\\u0061"}', '{"a":"\t"}']) assert.equal(recent.at(text, 0), undefined);
});

test('a detached text does not retain its message', () => {
  const pad = 'x'.repeat(1_048_576);
  const info = RawObject.parse('{"name":"n","version":"1"}');
  const before = heapBytes();
  for (let i = 0; i < 40; i++) {
    const meta = `{"io.modelcontextprotocol/protocolVersion":"${LATEST_MODERN}","io.modelcontextprotocol/clientCapabilities":{"n${i}":{}}}`;
    const uri = `file:///a/place/that/is/long/enough/${i}`;
    const params = `{"uri":"${uri}","pad":"${pad}","_meta":${meta}}`;
    const text = Buffer.from(`{"jsonrpc":"2.0","id":${i},"method":"resources/read","params":${params}}`).toString();
    const message = parseClientMessage(text);
    assert.ok(message.kind === 'request');
    const reading = readEnvelope(message.params);
    assert.ok(reading.kind === 'envelope');
    progressTokenOf(message.params);
    withEnvelope(message.params, { ...reading.envelope, clientInfo: info });
    standardHeaders(message);
  }
  const grownMiB = (heapBytes() - before) / 1_048_576;
  assert.ok(grownMiB < 10, `40 messages of 1 MiB left ${grownMiB} MiB`);
});
