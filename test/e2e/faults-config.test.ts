import assert from 'node:assert/strict';
import { once } from 'node:events';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { Child } from '../support/child.ts';
import { connect, textOf } from '../support/either-sdk.ts';
import { startGateway } from '../support/gateway.ts';
import { hostileStdio, Ledgers } from '../support/hostile.ts';
import { MAIN } from '../support/program.ts';

const TIMEOUT = { timeout: 120_000 };
const SERVERS = 'mcpServers: { a: { url: "http://127.0.0.1:9/mcp" } }\n';

let dir = '';

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-config-'));
});

after(async () => {
  await rm(dir, { recursive: true, force: true });
});

/** Runs `linkspan <args>`, which must end by itself. Returns its output and exit code. */
async function run(...args: readonly string[]) {
  const { LINKSPAN_UNSET: _unset, ...env } = process.env;
  await using child = await Child.start(process.execPath, [MAIN, ...args], { cwd: dir, env: { HOME: dir, ...env } });
  const { code } = await child.ended;
  return { code, output: child.logs() };
}

let files = 0;

async function runFile(text: string) {
  const name = `${++files}-config.yaml`;
  await writeFile(join(dir, name), text);
  return await run('run', '--config', name);
}

const WRONG = [
  {
    what: 'a setting of the wrong type',
    text: `${SERVERS}gateway:\n  listen: 7\n`,
    says: /config\.yaml:3:\d+.*listen/,
  },
  {
    what: 'a setting that does not exist',
    text: `${SERVERS}gateway:\n  listn: 127.0.0.1:0\n`,
    says: /config\.yaml:3:3.*listn.*listen/s,
  },
  {
    what: 'a duration without a unit',
    text: 'mcpServers:\n  a:\n    command: node\n    timeouts: { call: soon }\n',
    says: /config\.yaml:4:\d+.*soon/s,
  },
  {
    what: 'broken YAML',
    text: 'mcpServers:\n  a: {\n    command: node\n',
    says: /config\.yaml:\d+:\d+/,
  },
  {
    what: 'a key that everyone can read',
    text: `${SERVERS}gateway:\n  auth:\n    apiKeys:\n      - { name: ci, key: s3cr3t-s3cr3t }\n`,
    says: /config\.yaml:5:\d+.*key/,
  },
  {
    what: 'an unset variable under gateway',
    text: `${SERVERS}gateway:\n  publicUrl: '\${LINKSPAN_UNSET}'\n`,
    says: /config\.yaml:3:\d+.*LINKSPAN_UNSET/,
  },
  {
    what: 'two upstreams with one id',
    text: 'mcpServers:\n  a b: { command: node }\n  a-b: { command: node }\n',
    says: /config\.yaml:3:\d+/,
  },
  {
    what: 'a profile of an unknown upstream',
    text: `${SERVERS}gateway:\n  profiles:\n    p: { upstreams: [b] }\n`,
    says: /config\.yaml:4:22 gateway\.profiles\.p\.upstreams\[0\]: no such upstream/,
  },
];

suite('a start', { concurrency: 1 }, () => {
  for (const { what, text, says } of WRONG) {
    test(`${what} ends the start with exit code 1 and its place`, TIMEOUT, async () => {
      const { code, output } = await runFile(text);
      assert.equal(code, 1, output);
      assert.match(output, says);
      assert.doesNotMatch(output, /\n\s+at |s3cr3t/);
    });
  }

  test('all problems of a file are reported together', TIMEOUT, async () => {
    const { code, output } = await runFile(
      'mcpServers:\n  a: { url: there }\ngateway:\n  listen: x\n  logLevel: loud\n',
    );
    assert.equal(code, 1);
    for (const line of [2, 4, 5]) assert.match(output, new RegExp(`config\\.yaml:${line}:`));
  });

  test('a missing file ends the start with its name', TIMEOUT, async () => {
    const { code, output } = await run('run', '--config', 'nowhere.yaml');
    assert.equal(code, 1);
    assert.match(output, /nowhere\.yaml/);
    assert.doesNotMatch(output, /\n\s+at /);
  });

  test('an unknown command or option lists the known ones', TIMEOUT, async () => {
    for (const args of [['serve'], ['run', '--cofnig', 'x'], ['run', '--config']]) {
      const { code, output } = await run(...args);
      assert.equal(code, 2, output);
      assert.match(output, /linkspan: .*\n.*--help/s);
    }
  });

  test('no config file ends the start with the names that were looked for', TIMEOUT, async () => {
    const { code, output } = await run('run');
    assert.equal(code, 1, output);
    assert.match(output, /no config file in .*linkspan\.yaml.*--config/);
  });

  for (const door of ['listen', 'operator'] as const) {
    test(`a port in use ends the start with a sentence (${door})`, TIMEOUT, async () => {
      const taken = createServer().listen(0, '127.0.0.1');
      await once(taken, 'listening');
      try {
        const address = taken.address();
        const port = typeof address === 'object' && address !== null ? address.port : 0;
        const doors = { listen: '127.0.0.1:0', operator: '127.0.0.1:0', [door]: `127.0.0.1:${port}` };
        const config = { mcpServers: {}, gateway: { ...doors, stateDir: join(dir, 'state') } };
        const { code, output } = await runFile(JSON.stringify(config));
        assert.equal(code, 1, output);
        assert.match(output, new RegExp(`127\\.0\\.0\\.1:${port} .*in use`));
        assert.ok(!output.includes('"listening"'), output);
      } finally {
        taken.close();
      }
    });
  }

  test('a state directory that cannot be written ends the start with its name', TIMEOUT, async () => {
    const file = join(dir, 'no-directory');
    await writeFile(file, '');
    const config = { mcpServers: {}, gateway: { listen: '127.0.0.1:0', operator: false, stateDir: file } };
    const { code, output } = await runFile(JSON.stringify(config));
    assert.equal(code, 1, output);
    assert.ok(output.includes(file), output);
  });

  // M-028
  test('upstreams that cannot start are reported with the reason; the others work', TIMEOUT, async () => {
    const folder = join(dir, 'upstreams');
    const ledgers = new Ledgers(dir);
    const script = join(dir, 'not-executable.sh');
    await writeFile(script, '#!/bin/sh\n');
    await chmod(script, 0o600);
    await using gateway = await startGateway({
      mcpServers: {
        missing: { command: 'no-such-program-anywhere' },
        forbidden: { command: script },
        unset: { command: 'node', env: { TOKEN: '${LINKSPAN_UNSET}' } },
        refused: { url: 'http://127.0.0.1:9/mcp' },
        elsewhere: { command: 'node', cwd: join(folder, 'nowhere') },
        calm: hostileStdio('calm', ledgers),
      },
    });
    await using client = await connect('SDK v1', gateway.endpoint());
    assert.deepEqual(
      (await client.tools()).map(({ name }) => name),
      ['calm__fine', 'calm__bad'],
    );
    assert.equal(textOf(await client.call('calm__fine')), 'fine');
    const status = await (await fetch(`${gateway.operatorUrl}/status`)).text();
    for (const reason of [/no-such-program-anywhere/, /LINKSPAN_UNSET/, /refused the connection/]) {
      assert.match(status, reason);
    }
    const { upstreams } = JSON.parse(status);
    for (const { id, state, reason } of upstreams) {
      assert.equal(state === 'ready', id === 'calm', id);
      assert.equal(typeof reason === 'string' && reason !== '', id !== 'calm', `${id}: ${reason}`);
    }
  });
});
