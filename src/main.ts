#!/usr/bin/env node
import type { RunOptions } from './cli/run.ts';
import type { StartOptions } from './cli/start.ts';
import type { ValidateOptions } from './cli/validate.ts';

// Static imports are of types only, because the version of Node is checked before any module is loaded.

/** The oldest version of Node that can run our HTTP client. package.json names the same version. */
const OLDEST = [22, 19] as const;

const USAGE_ERROR = 2;

function isOldNode(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1]);
}

/** Runs the command that the arguments name. Returns the exit code. */
async function main(argv: readonly string[]): Promise<number> {
  const { keepCompiledCode } = await import('./compile-cache.ts');
  keepCompiledCode();
  const { Command, CommanderError, Option } = await import('commander');
  const { VERSION } = await import('./version.ts');
  const { addOperatorCommands } = await import('./cli/operator/commands.ts');
  let code = 0;

  const program = new Command('linkspan')
    .description('One MCP endpoint in front of many MCP servers.')
    .version(VERSION)
    .showHelpAfterError('(linkspan --help shows what there is)')
    .exitOverride()
    .addHelpText(
      'after',
      [
        '',
        'Examples:',
        '  linkspan run --config ~/.cursor/mcp.json        serve the servers of a client, as they are',
        '  linkspan run --listen 127.0.0.1:8080            serve linkspan.yaml or config/linkspan.yaml of this folder',
        '  linkspan status                                 show the running gateway',
        '  linkspan validate --start --config linkspan.yaml    start each upstream once, and say what it offers or why not',
      ].join('\n'),
    );

  const project = () =>
    new Option('-p, --project <folder>', 'serve the servers of this project of ~/.claude.json as well');
  const listen = () => new Option('-l, --listen <host:port>', 'where clients connect; comes before gateway.listen');
  const operator = () =>
    new Option('-o, --operator <host:port>', 'where status and metrics are, or off; comes before gateway.operator');
  const logFormat = () =>
    new Option('--log-format <format>', 'pretty for people, json for machines (default: pretty on a terminal)').choices(
      ['pretty', 'json'],
    );

  program
    .command('run')
    .description('Serve the upstreams of a config file until told to stop.')
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
      'without gateway.auth: make an API key at the first start, show it once, keep its hash',
      false,
    )
    .action(async (options: RunOptions) => {
      const { run } = await import('./cli/run.ts');
      code = await run(options);
    });

  program
    .command('prefetch')
    .description('Start each upstream once and keep its lists, so that no client waits for them later.')
    .option('-c, --config <file>', 'the config file (default: linkspan.yaml or the like)')
    .addOption(project())
    .addOption(logFormat())
    .action(async (options: StartOptions) => {
      const { prefetch } = await import('./cli/prefetch.ts');
      code = await prefetch(options);
    });

  program
    .command('validate')
    .description('Check a config file and print what would be served.')
    .option('-c, --config <file>', 'the config file (default: linkspan.yaml or the like)')
    .addOption(listen())
    .addOption(operator())
    .addOption(project())
    .option('--start', 'start each upstream once and ask for its lists; without it nothing is started', false)
    .option('--json', 'print JSON', false)
    .action(async (options: ValidateOptions) => {
      const { validate } = await import('./cli/validate.ts');
      code = await validate(options);
    });

  program
    .command('schema')
    .description('Print the JSON Schema of the config file.')
    .option('--write <file>', 'write it to this file instead')
    .addHelpText('after', '\nExample:\n  linkspan schema --write linkspan.schema.json')
    .action(async (options: { write: string | undefined }) => {
      const { schema } = await import('./cli/schema.ts');
      code = schema(options);
    });

  program
    .command('stdio')
    .description('Serve one client over stdin and stdout, for clients that only start programs.')
    .option('-c, --config <file>', 'the config file (default: linkspan.yaml or the like)')
    .addOption(project())
    .addOption(logFormat())
    .action(async (options: StartOptions) => {
      const { stdio } = await import('./cli/stdio.ts');
      code = await stdio(options);
    });

  addOperatorCommands(program, (exitCode) => {
    code = exitCode;
  });

  program
    .command('version')
    .description('Print the version.')
    .action(() => {
      process.stdout.write(`${VERSION}\n`);
    });

  try {
    await program.parseAsync(argv, { from: 'user' });
    return code;
  } catch (thrown) {
    if (thrown instanceof CommanderError) return thrown.exitCode === 0 ? 0 : USAGE_ERROR;
    const { CliError } = await import('./cli/operator/cli-error.ts');
    if (thrown instanceof CliError) {
      const isJson = argv.includes('--json');
      const { exitCode, message } = thrown;
      process.stderr.write(isJson ? `${JSON.stringify({ error: message, exitCode })}\n` : `linkspan: ${message}\n`);
      return exitCode;
    }
    const { ConfigError } = await import('./config/document/problem.ts');
    const { isExpected } = await import('./telemetry/log-error.ts');
    if (!(thrown instanceof ConfigError) && !(thrown instanceof Error && isExpected(thrown))) throw thrown;
    process.stderr.write(`${thrown.message}\n`);
    return 1;
  }
}

if (isOldNode(process.versions.node)) {
  process.stderr.write(`linkspan needs Node ${OLDEST.join('.')} or newer; this is Node ${process.versions.node}.\n`);
  process.exit(1);
}
const exitCode = await main(process.argv.slice(2));
// After an error of stdout, such as a closed terminal, no output can be written.
process.stdout.on('error', () => process.exit(exitCode));
// A pipe may not have taken all output yet, so the exit waits for the write.
process.stdout.write('', () => process.exit(exitCode));
