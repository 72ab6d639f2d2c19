import assert from 'node:assert/strict';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readFile, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { createSocket } from 'node:dgram';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { debianProgram } from '../support/programs.ts';
import { leftovers } from '../support/leftovers.ts';
import { until } from '../support/stdio.ts';
import { initialize, messagesOf, post, rpc } from '../downstream/client.ts';

const TIMEOUT = { timeout: 300_000 };
const SERVER = fileURLToPath(new URL('../fixtures/servers/escape-stdio.ts', import.meta.url));
const SECRET = 'a-secret-of-the-gateway';
const STAYING = `linkspan-sandbox-test-${process.pid}`;

/** The rows of the page: the attempt, and whether it is held in each sandbox. */
const ROWS = (await readFile(new URL('../../docs/sandbox.md', import.meta.url), 'utf8'))
  .split('\n')
  .map((line) => /^\| (.+?) \| (held|not held) \| (held|not held) \|$/.exec(line))
  .filter((found) => found !== null)
  .map(([, attempt = '', closed = '', networked = '']) => ({ attempt, outcomes: { closed, networked } }));

interface Places {
  readonly dir: string;
  readonly pid: number;
  readonly port: number;
  readonly udpPort: number;
}

/** The name of each attempt for the server, and its target. */
function attempts({
  dir,
  pid,
  port,
  udpPort,
}: Places): Readonly<Record<string, readonly [name: string, target?: string]>> {
  return {
    'read a file in the home of the user': ['read', join(dir, 'home/secret')],
    'read the config file': ['read', join(dir, 'config/config.json')],
    'list the state directory inside of a folder in `read`': ['list', join(dir, 'shown/state')],
    'list the state directory by a link to that folder': ['list', join(dir, 'linked/state')],
    'read a file in `/tmp`': ['read', join(dir, 'secret')],
    'read `/etc/shadow`': ['read', '/etc/shadow'],
    'read the environment of the gateway': ['read', `/proc/${pid}/environ`],
    "read a variable of the gateway's environment": ['environment', 'LINKSPAN_TEST_SECRET'],
    'follow a link of its own to a file outside': ['link', `${join(dir, 'written/link')}|${join(dir, 'secret')}`],
    'write into a folder in `read`': ['write', join(dir, 'shown/written')],
    'write into `/usr`': ['write', '/usr/linkspan-test'],
    'write `/etc/passwd`': ['append', '/etc/passwd'],
    'leave a file in the home of the user': ['write', join(dir, 'home/left')],
    'leave a file in `/tmp`': ['write', `/tmp/${STAYING}`],
    'see the processes of others': ['processes'],
    'signal the gateway': ['signal', String(pid)],
    'leave a process behind': ['stay', STAYING],
    'have capabilities': ['capabilities'],
    'get privileges by a set-user-ID program': ['privileges'],
    'mount a file system': ['mount'],
    'make a user namespace': ['namespace'],
    'change its root': ['chroot'],
    'make a device': ['device'],
    'change the host name': ['hostname'],
    'change a setting of the kernel': ['kernel'],
    'read shared memory of others': ['shared'],
    'open the terminal of the gateway': ['terminal'],
    'use a Unix socket that is a file': ['connect', join(dir, 'socket')],
    'use a Unix socket without a file': ['connect', `\0${STAYING}`],
    'connect to a port of this machine': ['connect', `127.0.0.1|${port}`],
    'send a datagram to a port of this machine': ['send', `127.0.0.1|${udpPort}`],
    'write into a folder in `write`': ['write', join(dir, 'written/file')],
  };
}

/** Settings by which a sandbox would have the config file in it, by the upstream that has them. */
function exposures(
  dir: string,
): Readonly<Record<string, { readonly read?: string[]; readonly write?: string[]; readonly cwd?: string }>> {
  return {
    reads: { read: [dir] },
    'reads-file': { read: [join(dir, 'config/config.json')] },
    'reads-link': { read: [join(dir, 'linked-config')] },
    writes: { write: [join(dir, 'config')] },
    works: { cwd: join(dir, 'config') },
  };
}

/** Attempts that are judged by what is there after the end of the gateway, because the server cannot know. */
const LATER = new Set([
  'leave a file in the home of the user',
  'leave a file in `/tmp`',
  'leave a process behind',
  'send a datagram to a port of this machine',
]);

/** Folders and files outside of the sandboxes, and servers that listen there. */
class Outside implements AsyncDisposable {
  readonly dir: string;
  readonly #files = createServer();
  readonly #abstract = createServer();
  readonly #tcp = createServer((socket) => socket.end());
  readonly #udp = createSocket('udp4');
  /** The texts of the datagrams that have arrived. */
  readonly datagrams = new Set<string>();

  private constructor(dir: string) {
    this.dir = dir;
  }

  static async open(): Promise<Outside> {
    const outside = new Outside(await realpath(await mkdtemp(join(tmpdir(), 'linkspan-sandbox-'))));
    const { dir } = outside;
    outside.#udp.on('message', (text) => outside.datagrams.add(text.toString()));
    for (const folder of ['home', 'shown', 'written', 'config']) await mkdir(join(dir, folder));
    await symlink(join(dir, 'shown'), join(dir, 'linked'));
    await symlink(join(dir, 'config'), join(dir, 'linked-config'));
    for (const file of ['secret', 'home/secret']) await writeFile(join(dir, file), 'secret');
    await writeFile('/dev/shm/linkspan-sandbox-test', 'shared');
    await Promise.all([
      once(outside.#files.listen(join(dir, 'socket')), 'listening'),
      once(outside.#abstract.listen(`\0${STAYING}`), 'listening'),
      once(outside.#tcp.listen(0, '127.0.0.1'), 'listening'),
      once(outside.#udp.bind(0, '127.0.0.1'), 'listening'),
    ]);
    return outside;
  }

  get port(): number {
    const address = this.#tcp.address();
    return typeof address === 'object' ? (address?.port ?? 0) : 0;
  }

  get udpPort(): number {
    return this.#udp.address().port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const server of [this.#files, this.#abstract, this.#tcp]) server.close();
    this.#udp.close();
    await rm('/dev/shm/linkspan-sandbox-test', { force: true });
    await rm(`/tmp/${STAYING}`, { force: true });
    await rm(this.dir, { recursive: true, force: true });
  }
}

async function commandLines(): Promise<string> {
  const found = await leftovers();
  return found.map(({ command }) => command).join('\n');
}

// SEC-42
suite('the sandbox holds what its page says', TIMEOUT, () => {
  let outside: Outside;
  let gateway: RunningGateway;
  const outcomes = new Map<string, string>();
  let logs = '';

  before(async () => {
    const bwrap = await debianProgram('bwrap', 'bubblewrap', 'usr/bin/bwrap');
    if ('missing' in bwrap) throw new Error(bwrap.missing);
    outside = await Outside.open();
    const { dir } = outside;
    const sandbox = { read: [SERVER, join(dir, 'shown'), join(dir, 'linked')], write: [join(dir, 'written')] };
    const env = { HOME: join(dir, 'home') };
    const server = { command: process.execPath, args: [SERVER], env };
    gateway = await startGateway(
      {
        mcpServers: {
          closed: { ...server, sandbox },
          networked: { ...server, sandbox: { ...sandbox, network: true } },
          ...Object.fromEntries(
            Object.entries(exposures(dir)).map(([id, { cwd, ...places }]) => [
              id,
              { ...server, cwd, sandbox: { read: [SERVER], ...places } },
            ]),
          ),
        },
        gateway: { stateDir: join(dir, 'shown/state') },
      },
      {
        dir: join(dir, 'config'),
        env: { PATH: [dirname(bwrap.path), process.env['PATH']].join(delimiter), LINKSPAN_TEST_SECRET: SECRET },
      },
    );
    await chmod(gateway.configFile, 0o644);
    const url = `${gateway.url}/mcp`;
    const sessionId = await initialize(url);
    const tried = attempts({ dir, pid: gateway.pid, port: outside.port, udpPort: outside.udpPort });
    let id = 1;
    for (const upstream of ['closed', 'networked']) {
      for (const [attempt, [name, target]] of Object.entries(tried)) {
        const ownTarget = name === 'send' ? `${target}|${upstream}` : target;
        const call = { name: `${upstream}__try`, arguments: { name, target: ownTarget } };
        const [answer] = messagesOf(await post(url, rpc(++id, 'tools/call', call), sessionId));
        outcomes.set(`${upstream}: ${attempt}`, JSON.stringify(answer));
        await rm(join(dir, 'written/link'), { force: true });
      }
    }
    for (const upstream of Object.keys(exposures(dir))) {
      const failed = `"upstream":"${upstream}","phase":"failed"`;
      await gateway.waitForLog((line) => (line.includes(failed) ? line : undefined));
    }
    await gateway.stop();
    logs = gateway.logs();
  });

  after(async () => {
    await outside[Symbol.asyncDispose]();
  });

  test('the page has at least 25 attempts, and the test makes them all', () => {
    const tried = Object.keys(attempts({ dir: '', pid: 0, port: 0, udpPort: 0 }));
    assert.deepEqual(ROWS.map(({ attempt }) => attempt).toSorted(), tried.toSorted());
    assert.ok(ROWS.length >= 25);
  });

  for (const { attempt, outcomes: promised } of ROWS) {
    for (const [upstream, promise] of Object.entries(promised)) {
      // SEC-42
      test(`${upstream}: ${attempt}: ${promise}`, () => {
        const outcome = outcomes.get(`${upstream}: ${attempt}`) ?? '';
        assert.match(outcome, /"text":"(?:done|failed: )/);
        if (!LATER.has(attempt))
          assert.equal(outcome.includes('"text":"done"') ? 'not held' : 'held', promise, outcome);
      });
    }
  }

  for (const [upstream, { read, write, cwd }] of Object.entries(exposures('/d'))) {
    // SEC-42
    test(`${JSON.stringify({ read, write, cwd })} with the config file starts no server`, () => {
      const lines = logs.split('\n').filter((line) => line.includes(`"upstream":"${upstream}"`));
      assert.match(lines.join('\n'), /would show .* with the config file of the gateway/);
    });
  }

  // SEC-42
  test('datagrams arrive only from the sandbox with the network', async () => {
    await until(() => outside.datagrams.has('networked'), 'the datagram arrives');
    assert.deepEqual([...outside.datagrams], ['networked']);
  });

  // SEC-42
  test('nothing is left outside when the servers have ended', async () => {
    for (const file of [join(outside.dir, 'home/left'), `/tmp/${STAYING}`, join(outside.dir, 'shown/written')]) {
      await assert.rejects(readFile(file), { code: 'ENOENT' });
    }
    assert.equal(await readFile(join(outside.dir, 'written/file'), 'utf8'), 'escaped');
    let lines = await commandLines();
    await until(() => {
      void commandLines().then((found) => (lines = found));
      return !lines.includes(STAYING);
    }, 'no process is left');
  });
});
