import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { runCli } from '../support/cli.ts';
import { listenLocally } from '../support/local-port.ts';

const NO_FILE = '/nonexistent.yaml: no such file. Check the path; the file of any MCP client works too';
const BOUNDED = { timeout: 120_000 };

const run = (...args: readonly string[]) => runCli(args, tmpdir(), { HOME: tmpdir() }, 30_000);

const WRONG = [
  { args: ['status', '--nope'], error: /^unknown option '--nope'$/ },
  { args: ['status', '--jso'], error: /^unknown option '--jso' \(Did you mean --json\?\)$/ },
  { args: ['call'], error: /^missing required argument 'tool'$/ },
  { args: ['explain', 'tool', 'x'], error: /^required option '--as <who>' not specified$/ },
  { args: ['ls', 'nonsense'], error: /Allowed choices are upstreams, items/ },
  { args: ['key', 'create'], error: /^missing required argument 'name'$/ },
  { args: ['validate', 'my.yaml'], error: /^a config file is named by an option: --config my\.yaml$/ },
  { args: ['stauts'], error: /^unknown command 'stauts' \(Did you mean status\?\)$/ },
] as const;

for (const { args, error } of WRONG) {
  test(`--json of the wrong command line "${args.join(' ')}" prints one JSON line`, BOUNDED, async () => {
    const { code, stdout, stderr } = await run(...args, '--json');
    assert.deepEqual([code, stdout], [2, '']);
    assert.match(stderr, /^[^\n]+\n$/);
    const parsed: { error: string; exitCode: number } = JSON.parse(stderr);
    assert.equal(parsed.exitCode, 2);
    assert.match(parsed.error, error);
  });
}

test('a wrong command line prints an error with the usage, and exits with 2', BOUNDED, async () => {
  for (const { args, usage } of [
    { args: ['stauts'], usage: 'linkspan [options] [command] (linkspan --help shows what there is)' },
    { args: ['status', '--nope'], usage: 'linkspan status [options] (linkspan status --help shows what there is)' },
    {
      args: ['explain'],
      usage: 'linkspan explain [options] --as <who> <kind> <name> (linkspan explain --help shows what there is)',
    },
    {
      args: ['policy', 'diff'],
      usage: 'linkspan policy diff [options] <old> <new> (linkspan policy diff --help shows what there is)',
    },
  ]) {
    const { code, stdout, stderr } = await run(...args);
    assert.deepEqual([code, stdout], [2, '']);
    assert.match(stderr, /^linkspan: .+\n/);
    assert.ok(stderr.endsWith(`\nUsage: ${usage}\n`), stderr);
  }
});

test('a command without a config file says once who it is and where it looked', BOUNDED, async () => {
  const { code, stderr } = await run('validate');
  assert.equal(code, 1);
  assert.match(stderr, /^linkspan: no config file in .*; looked for linkspan\.yaml, .* Name one with --config/);
});

test('a URL with https of a port that speaks HTTP is told to be http', BOUNDED, async () => {
  const server = createServer((_, response) => void response.end());
  const port = await listenLocally(server);
  try {
    const env = { HOME: tmpdir(), LINKSPAN_OPERATOR_KEY: 'x' };
    const { code, stderr } = await runCli(['status', '--url', `https://127.0.0.1:${port}`], tmpdir(), env, 30_000);
    assert.equal(code, 4);
    assert.match(stderr, /^linkspan: no gateway answers at https:.*does not speak HTTPS.*write --url http:/);
  } finally {
    server.close();
  }
});

test('audit verify names a file that is missing, and asks for the key of the others', BOUNDED, async () => {
  const missing = await run('audit', 'verify', '/nonexistent/audit.log');
  assert.deepEqual([missing.code, missing.stderr], [1, 'linkspan: there is no file /nonexistent/audit.log\n']);
  const key = await run('audit', 'verify', '--key-file', '/nonexistent/key', fileURLToPath(import.meta.url));
  assert.deepEqual([key.code, key.stderr], [1, 'linkspan: there is no key file /nonexistent/key\n']);
  const keyless = await run('audit', 'verify', fileURLToPath(import.meta.url));
  assert.equal(keyless.code, 1);
  assert.match(keyless.stderr, /^linkspan: name the key of the audit log with --key-file, or .* with --config\n$/);
});

for (const [event, words] of [
  ['start', 'npm start --'],
  ['linkspan', 'npm run -s linkspan -- <command>'],
  ['validate', 'npm run validate --'],
] as const) {
  test(`options that npm has kept from npm run ${event} are an error`, BOUNDED, async () => {
    const npm = { npm_package_name: 'linkspan', npm_lifecycle_event: event, npm_config_yes: 'true' };
    const env = { HOME: tmpdir(), ...npm, npm_config_listen: '127.0.0.1:0', npm_config_first_key: 'true' };
    const { code, stderr } = await runCli(['validate', '--config', '/nonexistent.yaml'], tmpdir(), env, 30_000);
    const advice = `write "--" before them: ${words} --listen … --first-key`;
    assert.deepEqual([code, stderr], [2, `linkspan: npm has kept --listen and --first-key for itself; ${advice}\n`]);
    const other = { ...env, npm_package_name: 'shop' };
    const ofOthers = await runCli(['validate', '--config', '/nonexistent.yaml'], tmpdir(), other, 30_000);
    assert.match(ofOthers.stderr, /no such file/);
  });
}

test('--json after -- is an argument and no option', BOUNDED, async () => {
  const { code, stderr } = await run('ls', '--', '--json');
  assert.equal(code, 2);
  assert.match(stderr, /^linkspan: command-argument value '--json' is invalid/);
});

test('--json of a config file that is missing prints one JSON line and exits with 1', BOUNDED, async () => {
  const { code, stderr } = await run('key', 'list', '--config', '/nonexistent.yaml', '--json');
  assert.equal(code, 1);
  assert.deepEqual(JSON.parse(stderr), { error: NO_FILE, exitCode: 1 });
});

test('--help and --version exit with 0, with --json too', BOUNDED, async () => {
  for (const args of [['--help'], ['--version'], ['status', '--help'], ['status', '--json', '--help']]) {
    const { code, stdout, stderr } = await run(...args);
    assert.deepEqual([code, stderr], [0, ''], args.join(' '));
    assert.match(stdout, /\S/);
  }
});

test('an empty name of the config file is told to be empty', BOUNDED, async () => {
  for (const [command, exitCode] of [
    ['validate', 1],
    ['status', 2],
  ] as const) {
    const { code, stderr } = await run(command, '--config', '');
    const message = 'linkspan: --config: its value is empty; name a file, or leave the option out\n';
    assert.deepEqual([code, stderr], [exitCode, message], command);
  }
});

test('an error about the config file as a whole begins with the name of the program', BOUNDED, async () => {
  for (const command of ['run', 'validate', 'prefetch', 'stdio', 'lock']) {
    const { code, stderr } = await run(command, '--config', '/nonexistent.yaml');
    assert.deepEqual([code, stderr], [1, `linkspan: ${NO_FILE}\n`], command);
  }
});
