import assert from 'node:assert/strict';
import { isUtf8 } from 'node:buffer';
import { once } from 'node:events';
import { request } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { test } from 'node:test';
import { modernUpstream, resultText } from '../support/http-upstream.ts';
import { modernHeaders, modernText } from '../support/modern-wire.ts';
import { openGateway } from '../support/open-gateway.ts';

const CALL = { name: 'up__t', arguments: {} };
/** Marks the place where the upstream inserts the bytes. */
const PLACE = '@@@@';

interface Got {
  readonly announced: number;
  readonly body: Buffer;
}

async function call(url: string, id: number | string): Promise<Got> {
  const body = modernText('tools/call', CALL, { id });
  const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
  const sent = request(url, { method: 'POST', headers: { ...headers, ...modernHeaders('tools/call', CALL) } });
  sent.end(body);
  const [response] = await once(sent, 'response');
  return { announced: Number(response.headers['content-length']), body: await buffer(response) };
}

const CONTENTS = {
  ASCII: Buffer.from('text'),
  'UTF-8': Buffer.from('é€'),
  'invalid UTF-8': Buffer.from([0xe9, 0xe9, 0xff, 0x80]),
};

for (const [what, bytes] of Object.entries(CONTENTS)) {
  test(`an answer with ${what} reaches a modern client as UTF-8 of its true length`, { timeout: 120_000 }, async () => {
    await using upstream = await modernUpstream({
      tools: [{ name: 't', inputSchema: { type: 'object' } }],
      answers: {
        'tools/call': ({ id, response }) => {
          const _meta = { 'io.modelcontextprotocol/serverInfo': { name: 'u', version: '1' } };
          const content = [{ type: 'text', text: PLACE }];
          const [before, after] = resultText(id, { resultType: 'complete', content, _meta }).split(PLACE);
          const body = Buffer.concat([Buffer.from(before ?? ''), bytes, Buffer.from(after ?? '')]);
          response.writeHead(200, { 'content-type': 'application/json', 'content-length': body.length }).end(body);
          return undefined;
        },
      },
    });
    await using gateway = await openGateway({ up: { type: 'http', url: upstream.url } });
    for (const id of [1, 'é']) {
      const { announced, body } = await call(gateway.url, id);
      assert.equal(announced, body.length);
      assert.ok(isUtf8(body));
      const { id: answered, result } = JSON.parse(body.toString());
      assert.equal(answered, id);
      assert.equal(result?.content[0].text, bytes.toString(), body.toString());
    }
  });
}
