#!/usr/bin/env node
import type { Command } from 'commander';
import type { ActionOf } from './cli/action.ts';

// Static imports are of types only, because the version of Node is checked before any module is loaded.

/** The oldest version of Node that can run our HTTP client. package.json names the same version. */
const OLDEST = [22, 19] as const;

const USAGE_ERROR = 2;
const OUTPUT_FAILED = 1;

function isOldNode(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1]);
}

/** Returns whether the arguments ask for JSON. Those after `--` are no options. */
function wantsJson(argv: readonly string[]): boolean {
  const end = argv.indexOf('--');
  return (end === -1 ? argv : argv.slice(0, end)).includes('--json');
}

const EXAMPLES = [
  ['run --config ~/.cursor/mcp.json', 'serve the servers of a client, as they are'],
  ['run --listen 127.0.0.1:8080', 'serve linkspan.yaml or config/linkspan.yaml of this folder'],
  ['status', 'show the running gateway'],
  ['key create ann --expires 90d', 'make an API key for a client'],
  ['validate --start --config linkspan.yaml', 'start each upstream once, and say what it offers or why not'],
] as const;

/** Runs the command that the arguments name. Returns the exit code. */
async function main(argv: readonly string[]): Promise<number> {
  // Half of them look names of hosts up, and nothing ends a look-up whose name server is silent. By default, Node has 4.
  process.env['UV_THREADPOOL_SIZE'] ??= '16';
  if (argv[0] === 'run') (await import('./cli/held-signals.ts')).holdSignals();
  // Compiled code is kept for the flags with which it was compiled, so they come first.
  const { keepObjectsYoung } = await import('./young-objects.ts');
  keepObjectsYoung();
  const { keepCompiledCode } = await import('./compile-cache.ts');
  keepCompiledCode();
  const { Command, CommanderError, Option } = await import('commander');
  const { COMMAND, optionsKeptByNpm, scriptFolders } = await import('./command-name.ts');
  const folders = scriptFolders(process.env);
  if (folders !== undefined) process.chdir(folders.caller);
  const { VERSION } = await import('./version.ts');
  const { printError } = await import('./cli/operator/output.ts');
  const { addKeyCommands } = await import('./cli/keys/commands.ts');
  const { addOperatorCommands } = await import('./cli/operator/commands.ts');
  let code = 0;
  const runs: ActionOf =
    (load) =>
    async (...args) => {
      const command = await load();
      code = await command(...args);
    };
  const isJson = wantsJson(argv);
  const fail = (exitCode: number, error: string, text = `linkspan: ${error}\n`): number => {
    printError(isJson ? `${JSON.stringify({ error, exitCode })}\n` : text);
    return exitCode;
  };

  const kept = optionsKeptByNpm(process.env);
  if (kept !== undefined) return fail(USAGE_ERROR, kept);

  const program = new Command(COMMAND)
    .description('One MCP endpoint in front of many MCP servers.')
    .version(VERSION)
    .configureOutput({
      outputError: (text, write) => {
        if (!isJson) write(withConfigOption(text).replace(/^error: /, 'linkspan: '));
      },
    })
    .exitOverride()
    .addHelpText(
      'after',
      ['', 'Examples:', ...EXAMPLES.map(([args, effect]) => `  ${COMMAND} ${args.padEnd(40)} ${effect}`)].join('\n'),
    );

  const project = () =>
    new Option('-p, --project <folder>', 'serve the servers of this project of ~/.claude.json as well');
  const listen = () => new Option('-l, --listen <host:port>', 'where clients connect; overrides gateway.listen');
  const operator = () =>
    new Option('-o, --operator <host:port>', 'where status and metrics are, or off; overrides gateway.operator');
  const logFormat = () =>
    new Option('--log-format <format>', 'pretty for people, json for machines (default: pretty on a terminal)').choices(
      ['pretty', 'json'],
    );

  program
    .command('run')
    .description('Serve the upstreams of a config file until SIGTERM or Ctrl-C.')
    .option(
      '-c, --config <file>',
      'our YAML, JSON or TOML file, or the file of any MCP client (never written); default: linkspan.yaml or the like',
    )
    .addOption(listen())
    .addOption(operator())
    .addOption(project())
    .addOption(logFormat())
    .option(
      '--last-good',
      'keep a copy of the config in the state directory, and start a broken file with the upstreams of that copy',
      false,
    )
    .option('--warm', 'fetch the lists of all upstreams before listening', false)
    .option(
      '--first-key',
      'without gateway.auth: make an API key at the first start, show it once, keep its hash (LINKSPAN_FIRST_KEY=1 does so too)',
      false,
    )
    .action(runs(async () => (await import('./cli/run.ts')).run));

  program
    .command('worker', { hidden: true })
    .description('Serve clients for the gateway that has started this process.')
    .action(
      runs(async () => {
        const { runWorker } = await import('./compose/workers/worker.ts');
        return () => runWorker().then(() => 0);
      }),
    );

  program
    .command('prefetch')
    .description('Start each upstream once and keep its lists, so that no client waits for them later.')
    .option('-c, --config <file>', 'the config file (default: linkspan.yaml or the like)')
    .addOption(project())
    .addOption(logFormat())
    .action(runs(async () => (await import('./cli/prefetch.ts')).prefetch));

  program
    .command('validate')
    .description('Check a config file and print what would be served.')
    .option('-c, --config <file>', 'the config file (default: linkspan.yaml or the like)')
    .addOption(listen())
    .addOption(operator())
    .addOption(project())
    .option('--first-key', 'check it as for "run --first-key"', false)
    .option('--start', 'start each upstream once and ask for its lists; without it nothing is started', false)
    .option('--json', 'print JSON', false)
    .action(runs(async () => (await import('./cli/validate.ts')).validate));

  const policy = program.command('policy').description('Compare access policies.');
  policy
    .command('diff')
    .description(
      'Print the items that principals lose or gain by another config, by the last lists. Exits with 1 if there are any.',
    )
    .argument('<old>', 'the config file now')
    .argument('<new>', 'the config file afterwards')
    .option('--state-dir <folder>', 'the state directory with the last lists (default: that of the old file)')
    .option('--json', 'print JSON', false)
    .action(runs(async () => (await import('./cli/policy-diff.ts')).policyDiff));

  program
    .command('lock')
    .description('Start each upstream once and pin its definitions of tools, prompts and resources in the lock file.')
    .option('-c, --config <file>', 'the config file (default: linkspan.yaml or the like)')
    .addOption(project())
    .option('--upstream <id>', 'only this upstream; the others stay as they are in the file')
    .option('--check', 'write nothing; exit with 1 if a definition differs', false)
    .option('--json', 'print JSON, also for errors', false)
    .action(runs(async () => (await import('./cli/lock.ts')).lock));

  program
    .command('schema')
    .description('Print the JSON Schema of the config file.')
    .option('--write <file>', 'write it to this file instead')
    .addHelpText('after', `\nExample:\n  ${COMMAND} schema --write linkspan.schema.json`)
    .action(runs(async () => (await import('./cli/schema.ts')).schema));

  program
    .command('stdio')
    .description('Serve one client over stdin and stdout, for clients that only start programs.')
    .option('-c, --config <file>', 'the config file (default: linkspan.yaml or the like)')
    .addOption(project())
    .addOption(logFormat())
    .action(runs(async () => (await import('./cli/stdio.ts')).stdio));

  const audit = program.command('audit').description('Work with the audit log.');
  audit
    .command('verify')
    .description('Check that no record of an audit log was changed, removed or added. Exits with 1 if one was.')
    .argument('[files...]', 'files of the log; renamed ones beside them are added (default: gateway.audit.file)')
    .option('-c, --config <file>', 'the config file, which has the key or names the state directory with it')
    .option('--key-file <file>', 'the file with the key, instead of that of the config')
    .option('--head <file>', 'the signed head (default: the one beside the file)')
    .option('--without-head', 'do not check whether records are missing at the end', false)
    .option('--part', 'accept that earlier records are in other files', false)
    .option('--json', 'print JSON', false)
    .action(runs(async () => (await import('./cli/audit.ts')).auditVerify));

  addKeyCommands(program, runs);
  addOperatorCommands(program, runs);

  program
    .command('version')
    .description('Print the version.')
    .action(() => {
      process.stdout.write(`${VERSION}\n`);
    });

  addUsageHints(program, !isJson);

  try {
    await program.parseAsync(argv, { from: 'user' });
    return code;
  } catch (thrown) {
    if (thrown instanceof CommanderError) {
      if (thrown.exitCode === 0) return 0;
      // Commander has written the error as text; as JSON it is written here.
      return isJson ? fail(USAGE_ERROR, oneLine(thrown.message)) : USAGE_ERROR;
    }
    const { CliError } = await import('./cli/operator/cli-error.ts');
    if (thrown instanceof CliError) return fail(thrown.exitCode, thrown.message);
    const { ConfigError, problemsText } = await import('./config/document/problem.ts');
    const { isExpected } = await import('./telemetry/log-error.ts');
    if (thrown instanceof ConfigError) return fail(1, thrown.message, problemsText(thrown));
    if (!(thrown instanceof Error && isExpected(thrown))) throw thrown;
    const { pathFault } = await import('./store/disk/path-fault.ts');
    return fail(1, pathFault(thrown) ?? thrown.message);
  }
}

/** Lets errors of the command line be followed by the usage of the command that they are about. */
function addUsageHints(command: Command, isShown: boolean, name = command.name()): void {
  const usage = `${name} ${command.usage()}`;
  command.showHelpAfterError(isShown && `Usage: ${usage} (${name} --help shows what there is)`);
  for (const one of command.commands) addUsageHints(one, isShown, `${name} ${one.name()}`);
}

const FILE_AS_ARGUMENT =
  /too many arguments for '[\w-]+'\. Expected 0 arguments but got 1: (.*\.(?:ya?ml|jsonc?|toml))\./;

/** Returns a message of commander, with the option if a config file was named without it. */
function withConfigOption(message: string): string {
  return message.replace(FILE_AS_ARGUMENT, 'a config file is named by an option: --config $1');
}

/** Returns a message of commander in one line, without the word before it. */
function oneLine(message: string): string {
  return withConfigOption(message)
    .replace(/^error: /, '')
    .replaceAll(/\s*\n\s*/g, ' ');
}

if (isOldNode(process.versions.node)) {
  process.stderr.write(`linkspan needs Node ${OLDEST.join('.')} or newer; this is Node ${process.versions.node}.\n`);
  process.exit(1);
}
/** The first error of stdout, but for that of a reader that has gone: a closed pipe, or a terminal that hung up. */
let outputError: NodeJS.ErrnoException | undefined;
let exitCode: number | undefined;
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  noteOutputError(error);
  if (exitCode !== undefined) exit(exitCode);
});
exitCode = await main(process.argv.slice(2));
// A pipe may not have taken all output yet, so the exit waits for the write.
process.stdout.write('', (error) => {
  if (error) noteOutputError(error);
  exit(exitCode);
});

function noteOutputError(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EPIPE' && error.code !== 'EIO') outputError ??= error;
}

/** Ends the process. Output that could not be written, such as on a full disk, is a failure. */
function exit(code: number | undefined): void {
  if (outputError !== undefined) process.stderr.write(`linkspan: the output was not written: ${outputError.message}\n`);
  process.exit(outputError === undefined ? code : OUTPUT_FAILED);
}
