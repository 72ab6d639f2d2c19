import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { after, suite, test } from 'node:test';
import { inspect } from 'node:util';
import { pino } from 'pino';
import { GatewayError } from '../../../src/errors.ts';
import { TAG_NAME } from '../../../src/upstream/stdio/tagged-processes.ts';
import { childEnvironment } from '../../../src/upstream/stdio/launch/environment.ts';
import { ProcessGuard } from '../../../src/upstream/stdio/process-guard.ts';
import { stdioTransport } from '../../../src/upstream/stdio/stdio.ts';
import { marker } from '../../support/leftovers.ts';
import { Stdio } from '../../support/stdio.ts';
import { UNBOUNDED } from '../../support/receiving.ts';

const LIMIT = { timeout: 120_000 };

suite('starting a process', () => {
  const directory = mkdtempSync(join(tmpdir(), 'linkspan-stdio-'));
  after(() => rmSync(directory, { recursive: true }));
  const plain = join(directory, 'plain');
  const orphan = join(directory, 'orphan');
  writeFileSync(plain, 'not a program', { mode: 0o644 });
  writeFileSync(orphan, '#!/nowhere/interpreter\n');
  chmodSync(orphan, 0o755);

  const PATH = '/nowhere/bin:/nowhere/else';
  const failures = [
    {
      name: 'a command that is not on the PATH',
      options: { command: 'no-such-command', env: { PATH } },
      reason: /command "no-such-command" was not found; give the full path/,
      note: /^searched PATH: \/nowhere\/bin, \/nowhere\/else$/,
    },
    {
      name: 'npx without Node.js',
      options: { command: 'npx', env: { PATH } },
      reason: /command "npx" was not found; install Node\.js/,
      note: /^searched PATH/,
    },
    {
      name: 'uvx without uv',
      options: { command: 'uvx', env: { PATH } },
      reason: /command "uvx" was not found; install uv,/,
      note: /^searched PATH/,
    },
    {
      name: 'a file that is not there',
      options: { command: join(directory, 'missing') },
      reason: /command "missing" was not found$/,
      note: /there is no file .*missing$/,
    },
    {
      name: 'a file that is not there with its arguments',
      options: { command: `${join(directory, 'missing')} --key=secret` },
      reason: /command "missing" was not found$/,
      note: /there is no file .*missing$/,
    },
    {
      name: 'a command with a NUL in its arguments',
      options: { command: `${join(directory, 'missing')} --key=secret\0` },
      reason: /command "missing" could not be started \(ERR_INVALID_ARG_VALUE\)$/,
      note: /could not start .*missing: ERR_INVALID_ARG_VALUE$/,
    },
    {
      name: 'a PATH with a folder twice',
      options: { command: 'no-such-command', env: { PATH: '/nowhere/bin:/nowhere/else:/nowhere/bin' } },
      reason: /command "no-such-command" was not found/,
      note: /^searched PATH: \/nowhere\/bin, \/nowhere\/else$/,
    },
    {
      name: 'a command with its arguments',
      options: {
        command: `${basename(process.execPath)} -e "a b" --key=secret`,
        env: { PATH: dirname(process.execPath) },
      },
      reason: /command "node" has arguments in its text; they belong in "args"$/,
      note: /^write command: node, and each argument as an item of the list args$/,
    },
    {
      name: 'a command of several words that is not on the PATH',
      options: { command: 'no-such-command --key=secret', env: { PATH } },
      reason: /command "no-such-command" was not found; its arguments belong in "args"; give the full path/,
      note: /^searched PATH: \/nowhere\/bin, \/nowhere\/else$/,
    },
    {
      name: 'a command with spaces around it',
      options: { command: ' node ', env: { PATH } },
      reason: /command "node" has spaces around it; remove them$/,
      note: /^spaces are part of its name$/,
    },
    {
      name: 'a command with spaces around it and its arguments',
      options: {
        command: ` ${basename(process.execPath)} --key=secret`,
        env: { PATH: dirname(process.execPath) },
      },
      reason: /command "node" has arguments in its text; they belong in "args"$/,
      note: /^write command: node, and each argument as an item of the list args$/,
    },
    {
      name: 'a folder',
      options: { command: directory },
      reason: /command "linkspan-stdio-\w+" is a folder; give the path of a program in it$/,
      note: /is a folder$/,
    },
    {
      name: 'an absent working directory',
      options: { command: process.execPath, cwd: join(directory, 'missing') },
      reason: /the working directory of command "\w+" does not exist/,
      note: /^cwd: .*missing$/,
    },
    {
      name: 'a file as working directory',
      options: { command: process.execPath, cwd: plain },
      reason: /the working directory of command "\w+" does not exist or is no directory/,
      note: /plain/,
    },
    {
      name: 'a file that is not executable',
      options: { command: plain },
      reason: /command "plain" may not be executed/,
      note: /is not executable/,
    },
    {
      name: 'a script without its interpreter',
      options: { command: orphan },
      reason: /command "orphan" needs an interpreter that was not found/,
      note: /orphan/,
    },
    {
      name: 'an argument with a NUL',
      options: { command: process.execPath, args: ['secret\0'] },
      reason: /could not be started \(ERR_INVALID_ARG_VALUE\)/,
      note: /could not start/,
    },
  ];
  for (const { name, options, reason, note } of failures) {
    // N-84
    test(`${name} has its own message, for clients without paths`, LIMIT, async () => {
      const {
        command,
        args = [],
        ...rest
      }: { command: string; args?: string[]; env?: Record<string, string>; cwd?: string } = options;
      await assert.rejects(Stdio.start(command, args, rest), (error) => {
        assert.ok(error instanceof GatewayError);
        assert.equal(error.code, 'upstream-unavailable');
        assert.equal(error.detail.executed, 'no');
        assert.equal(error.detail.retryable, false);
        assert.match(error.message, reason);
        assert.doesNotMatch(error.message, /\/|secret/);
        assert.ok(error.cause instanceof Error);
        assert.match(error.cause.message, note);
        assert.doesNotMatch(inspect(error), /secret/);
        return true;
      });
    });
  }

  test('a shell never reads the arguments', LIMIT, async () => {
    const args = [
      '-e',
      'console.log(JSON.stringify({jsonrpc:"2.0",method:"argv",params:{argv:process.argv.slice(1)}}))',
    ];
    const hostile = ['$(touch x)', '; exit 9', '`id`', '*', "'", '"', '| cat', '> y'];
    await using stdio = await Stdio.start(process.execPath, [...args, '--', ...hostile], { cwd: directory });
    await stdio.closed;
    const [message] = stdio.messages;
    assert.ok(message?.kind === 'notification');
    assert.deepEqual(message.params?.value('argv'), hostile);
  });

  test('an aborted start starts no process', LIMIT, async () => {
    const log = pino({ level: 'silent' });
    await using guard = new ProcessGuard(log);
    const target = { kind: 'stdio', command: 'true', args: [], env: {}, cwd: undefined } as const;
    const start = stdioTransport(target, { upstream: 'x', messageBytes: 1_000, receiving: UNBOUNDED, log, guard });
    const events = { onMessage: () => {}, onDropped: () => {}, onSendFailed: () => {}, onClose: () => {} };
    await assert.rejects(start(events, AbortSignal.abort(), { audience: '' }), { code: 'upstream-unavailable' });
  });
});

suite('the environment of a process', () => {
  test('has the allow-listed part of ours and the variables of the config only', LIMIT, async (t) => {
    process.env['LINKSPAN_SECRET'] = 'hunter2';
    process.env['npm_lifecycle_event'] = 'start';
    t.after(() => {
      delete process.env['LINKSPAN_SECRET'];
      delete process.env['npm_lifecycle_event'];
    });
    const env = { TOKEN: 'for the server', ...marker() };
    await using stdio = await Stdio.server('stdio-echo.ts', { env });
    const { [TAG_NAME]: tag, ...seen } = Object(JSON.parse((await stdio.call('env')).raw('env') ?? ''));
    assert.match(String(tag), /^[\da-f-]{36}:\d+:files$/);
    assert.deepEqual(seen, childEnvironment(process.env, env));
    assert.doesNotMatch(JSON.stringify(seen), /hunter2|npm_lifecycle/);
  });

  test('a process runs in the configured working directory', LIMIT, async () => {
    await using stdio = await Stdio.server('stdio-echo.ts', { cwd: '/' });
    assert.equal((await stdio.call('env')).string('cwd'), '/');
  });

  const passed = {
    PATH: '/work/node_modules/.bin:/usr/bin',
    HOME: '/home/me',
    LC_ALL: 'C',
    XDG_CACHE_HOME: '/home/me/.cache',
    NODE_EXTRA_CA_CERTS: '/etc/ca.pem',
    HTTPS_PROXY: 'http://proxy:3128',
    no_proxy: 'localhost',
    npm_config_registry: 'https://registry.example',
    UV_CACHE_DIR: '/cache',
  };
  const kept = {
    AWS_SECRET_ACCESS_KEY: 'x',
    REDIS_URL: 'redis://x',
    NODE_OPTIONS: '--inspect',
    NODE_TEST_CONTEXT: 'child-v8',
    LD_PRELOAD: '/x.so',
    npm_lifecycle_event: 'start',
    npm_config_local_prefix: '/work',
    npm_package_name: 'linkspan',
    UV_PUBLISH_TOKEN: 'x',
    HTTP_PROXY: 'http://me:password@proxy:3128',
    LC_TIME: '() { :; }',
  };
  test('has no secrets of ours, no passwords in addresses, and no npm variables', () => {
    assert.deepEqual(childEnvironment({ ...passed, ...kept, USER: undefined }, {}), passed);
  });

  test('prefers the variables of the config', () => {
    assert.deepEqual(childEnvironment({ PATH: '/usr/bin' }, { PATH: '/opt/bin', HTTP_PROXY: 'http://a:b@c' }), {
      PATH: '/opt/bin',
      HTTP_PROXY: 'http://a:b@c',
    });
  });
});
