#!/usr/bin/env node
// Nothing is imported before the version of Node is known to be one that can load it.

/** The oldest Node that our HTTP client runs on; as in package.json. */
const OLDEST = [22, 19] as const;

const USAGE_ERROR = 2;

function isOldNode(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1]);
}

/** Runs the verb that the arguments name. Returns the exit code. */
async function main(argv: readonly string[]): Promise<number> {
  const { Command, CommanderError } = await import('commander');
  const { VERSION } = await import('./version.ts');
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
        '  linkspan run --config linkspan.yaml --listen 127.0.0.1:8080',
        '  linkspan validate --config linkspan.yaml        say what would be served, or what is wrong',
      ].join('\n'),
    );

  program
    .command('run')
    .description('Serve the upstreams of a config file until told to stop.')
    .requiredOption('-c, --config <file>', 'our YAML or JSON file, or the file of any MCP client (never written)')
    .option('-l, --listen <host:port>', 'where clients connect; comes before gateway.listen')
    .action(async (options: { config: string; listen?: string }) => {
      const { run } = await import('./cli/run.ts');
      code = await run(options);
    });

  program
    .command('validate')
    .description('Check a config file and print what would be served. Starts nothing.')
    .requiredOption('-c, --config <file>', 'the config file')
    .option('-l, --listen <host:port>', 'as for run')
    .option('--json', 'print JSON', false)
    .action(async (options: { config: string; listen?: string; json: boolean }) => {
      const { validate } = await import('./cli/validate.ts');
      code = validate(options);
    });

  program
    .command('schema')
    .description('Print the JSON Schema of the config file.')
    .option('--write', 'write config/linkspan.schema.json instead', false)
    .addHelpText('after', '\nExample:\n  linkspan schema > linkspan.schema.json')
    .action(async (options: { write: boolean }) => {
      const { schema } = await import('./cli/schema.ts');
      code = schema(options);
    });

  program
    .command('stdio')
    .description('Serve one client over stdin and stdout, for clients that only start programs.')
    .requiredOption('-c, --config <file>', 'the config file')
    .action(async (options: { config: string }) => {
      const { stdio } = await import('./cli/stdio.ts');
      code = await stdio(options);
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
    const { ConfigError } = await import('./config/problem.ts');
    if (!(thrown instanceof ConfigError)) throw thrown;
    process.stderr.write(`${thrown.message}\n`);
    return 1;
  }
}

if (isOldNode(process.versions.node)) {
  process.stderr.write(`linkspan needs Node ${OLDEST.join('.')} or newer; this is Node ${process.versions.node}.\n`);
  process.exit(1);
}
const exitCode = await main(process.argv.slice(2));
// What was printed may still be on its way into a pipe.
process.stdout.write('', () => process.exit(exitCode));
