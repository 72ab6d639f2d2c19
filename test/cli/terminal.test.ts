import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters } from 'node:util';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Child } from '../support/child.ts';
import { startGateway } from '../support/gateway.ts';
import { startOnTerminal } from '../support/terminal.ts';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const MEMORY = fileURLToPath(
  new URL('../../node_modules/@modelcontextprotocol/server-memory/dist/index.js', import.meta.url),
);
const BOUNDED = { timeout: 120_000 };

let dir = '';

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-terminal-'));
});

after(async () => {
  await rm(dir, { recursive: true, force: true });
});

let files = 0;

async function configFile(gateway: object, mcpServers: object = {}): Promise<string> {
  const file = join(dir, `${++files}.json`);
  const settings = { listen: '127.0.0.1:0', operator: '127.0.0.1:0', stateDir: join(dir, 'state'), ...gateway };
  await writeFile(file, JSON.stringify({ mcpServers, gateway: settings }));
  return file;
}

/** Runs the gateway on a terminal. */
function onTerminal(config: string, ...args: readonly string[]): Promise<Child> {
  const command = [process.execPath, MAIN, 'run', '--config', config, ...args].map((arg) => `'${arg}'`).join(' ');
  return startOnTerminal(`exec ${command}`, join(dir, 'typescript'), { TERM: 'xterm' });
}

function plain(text: string): string {
  return stripVTControlCharacters(text).replaceAll('\r', '');
}

const urlIn = (line: string) => /Clients\s+(http:\S+)/.exec(plain(line))?.[1];

// N-95
test('a start without keys says what all clients share, and one with keys does not', BOUNDED, async () => {
  const sharedBy = async (gateway: object) => {
    await using terminal = await onTerminal(await configFile(gateway));
    await terminal.waitForLine((line) => (line.includes('Ctrl-C') ? true : undefined));
    return /Keys\s+none needed; all clients together may open (\d+) sessions/.exec(plain(terminal.logs()))?.[1];
  };
  assert.equal(await sharedBy({}), '1000');
  assert.equal(await sharedBy({ limits: { sessionsPerPrincipal: 7 } }), '7');
  assert.equal(await sharedBy({ limits: { sessions: 5 } }), '5');
  assert.equal(await sharedBy({ auth: { apiKeys: [{ name: 'a', sha256: 'a'.repeat(64) }] } }), undefined);
});

// N-10
test('a terminal shows the URL, how to connect, and why upstreams fail', BOUNDED, async () => {
  const servers = {
    memory: { command: process.execPath, args: [MEMORY], env: { MEMORY_FILE_PATH: join(dir, 'memory') } },
    missing: { command: 'no-such-program-anywhere' },
    socket: { type: 'ws', url: 'ws://127.0.0.1/mcp' },
  };
  await using terminal = await onTerminal(await configFile({}, servers));
  const url = await terminal.waitForLine(urlIn);
  await terminal.waitForLine((line) => (line.includes('Ctrl-C') ? true : undefined));
  const client = new Client({ name: 'person', version: '1' });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  await client.listTools();
  await terminal.waitForLine((line) => (/missing .*failed/.test(plain(line)) ? true : undefined));
  await terminal.waitForLine((line) => (/memory .*ready, 9 tools/.test(plain(line)) ? true : undefined));
  await client.close();

  const printed = plain(terminal.logs());
  assert.match(printed, new RegExp(`claude mcp add --transport http linkspan ${url}`));
  assert.match(printed, /Status +http:\/\/127\.0\.0\.1:\d+\/status/);
  assert.match(printed, /✗ missing +failed: command "no-such-program-anywhere" was not found/);
  assert.match(printed, /✗ socket +failed: .*WebSocket is not supported/);
  assert.doesNotMatch(printed, /"level"|\n\s+at |tools\/list|era of/);
});

// N-10
test('--log-format overrides the choice by terminal in both directions', BOUNDED, async () => {
  await using terminal = await onTerminal(await configFile({}), '--log-format', 'json');
  await terminal.waitForLine((line) => (line.startsWith('{') && line.includes('"listening"') ? true : undefined));

  const args = [MAIN, 'run', '--config', await configFile({}), '--log-format', 'pretty'];
  await using piped = await Child.start(process.execPath, args);
  await piped.waitForLine(urlIn);
  assert.doesNotMatch(piped.logs(), /"level"|\p{Cc}\[/u);
});

for (const [format, form] of [
  [
    'json',
    /^\{[^\n]*"reason":"cannot listen on 127\.0\.0\.1:\d+ \(gateway\.listen or --listen\): the port is in use by another program, perhaps another start of this gateway; stop it, or choose another port"[^\n]*\}$/m,
  ],
  [
    'pretty',
    /^! cannot start: cannot listen on 127\.0\.0\.1:\d+ \(gateway\.listen or --listen\): the port is in use by another program, perhaps another start of this gateway; stop it, or choose another port$/m,
  ],
] as const) {
  // N-10
  test(`a port in use gives one sentence and exit code 1 (${format})`, BOUNDED, async () => {
    const taken = createServer().listen(0, '127.0.0.1');
    await once(taken, 'listening');
    try {
      const address = taken.address();
      const port = typeof address === 'object' && address !== null ? address.port : 0;
      const config = await configFile({ listen: `127.0.0.1:${port}` }, { a: { url: 'http://127.0.0.1:9/mcp' } });
      await using child = await Child.start(process.execPath, [
        MAIN,
        'run',
        '--config',
        config,
        '--log-format',
        format,
      ]);
      assert.equal((await child.ended).code, 1);
      assert.match(child.logs(), form);
      assert.doesNotMatch(child.logs(), /stack|\n\s+at /);
    } finally {
      taken.close();
    }
  });
}

// N-49
test('a second gateway logs that its operator port moved, if none was configured', BOUNDED, async () => {
  const config = { mcpServers: {}, gateway: { operator: undefined } };
  await using first = await startGateway(config);
  await using second = await startGateway(config);
  assert.notEqual(first.operatorUrl, second.operatorUrl);
  assert.equal((await fetch(`${second.operatorUrl}/livez`)).status, 200);
  assert.match(second.logs(), new RegExp(`"operatorUrl":"${second.operatorUrl}","msg":"the operator's port is in use`));
});

// N-49
test('--operator changes the operator port, and off disables it', BOUNDED, async () => {
  await using moved = await startGateway({ mcpServers: {} }, { args: ['--operator', '127.0.0.1:0'] });
  assert.equal((await fetch(`${moved.operatorUrl}/livez`)).status, 200);
  await using closed = await startGateway({ mcpServers: {} }, { args: ['--operator', 'off'] });
  assert.throws(() => closed.operatorUrl, /no operator port/);
});
