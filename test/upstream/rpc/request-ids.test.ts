import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import { nextRequestId } from '../../../src/upstream/rpc/request-ids.ts';
import { json, serve } from '../../fixtures/servers/http-harness.ts';
import { modernResult } from '../../support/modern-wire.ts';
import { openGateway } from '../../support/open-gateway.ts';

const MODULE = fileURLToPath(new URL('../../../src/upstream/rpc/request-ids.ts', import.meta.url));

/** The first ids of another process. */
function idsElsewhere(count: number): number[] {
  const script = `const { nextRequestId } = await import(${JSON.stringify(MODULE)});
    console.log(JSON.stringify(Array.from({ length: ${count} }, nextRequestId)));`;
  const { stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8' });
  return JSON.parse(stdout);
}

// N-20
test('no id repeats within a process, and each fits 32 bits', () => {
  const ids = new Set<number>();
  for (let n = 0; n < 1_000_000; n++) {
    const id = nextRequestId();
    assert.ok(Number.isInteger(id) && id > 0 && id < 2 ** 31);
    ids.add(id);
  }
  assert.equal(ids.size, 1_000_000);
});

// N-20
test('ids differ between processes, and cannot be derived from earlier ids', () => {
  const [here, there] = [idsElsewhere(50), idsElsewhere(50)];
  assert.deepEqual(
    here.filter((id) => there.includes(id)),
    [],
  );
  const steps = here.slice(1).map((id, at) => id - (here[at] ?? 0));
  assert.ok(new Set(steps).size > 40);
});

const MESSAGE = z.object({ id: z.number().optional(), method: z.string() });

/** Returns the answer of a small server, with the id as a text. The same code runs in a child process. */
function answerTo({ id, method }: z.infer<typeof MESSAGE>): string | undefined {
  if (id === undefined) return undefined;
  const results = new Map<string, object>([
    [
      'initialize',
      { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 's', version: '1' } },
    ],
    ['tools/list', { tools: [{ name: 't', inputSchema: { type: 'object' } }] }],
    ['tools/call', { content: [{ type: 'text', text: 'ok' }] }],
  ]);
  const result = results.get(method);
  const error = { code: -32_601, message: 'Method not found' };
  return JSON.stringify({ jsonrpc: '2.0', id: String(id), ...(result === undefined ? { error } : { result }) });
}

const STDIO = `${answerTo.toString()}
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const text = answerTo(JSON.parse(line));
  if (text !== undefined) console.log(text);
});`;

for (const transport of ['stdio', 'HTTP'] as const) {
  test(`a server over ${transport} that sends our ids back as texts is served`, { timeout: 120_000 }, async () => {
    await using server = await serve(({ method, body }, response) => {
      const text = method === 'POST' ? answerTo(MESSAGE.parse(JSON.parse(body))) : undefined;
      if (text !== undefined) json(response, text);
      else response.writeHead(method === 'POST' ? 202 : 405).end();
    });
    const up = transport === 'HTTP' ? { url: server.url } : { command: process.execPath, args: ['-e', STDIO] };
    await using gateway = await openGateway({ up });
    const { tools } = await modernResult(gateway.url, 'tools/list');
    assert.partialDeepStrictEqual(tools, [{ name: 'up__t' }]);
    const { content } = await modernResult(gateway.url, 'tools/call', { name: 'up__t', arguments: {} });
    assert.deepEqual(content, [{ type: 'text', text: 'ok' }]);
  });
}
