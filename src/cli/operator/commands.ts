import { COMMAND } from '../../command-name.ts';
import { Argument, type Command, Option } from 'commander';
import { KEY_WORDS } from '../keys/commands.ts';
import type { DrainOptions } from './actions.ts';
import type { CallCommandOptions } from './call.ts';
import type { Completable } from './completion.ts';
import type { ExplainOptions, ExplainedKind } from './explain.ts';
import type { HealthcheckOptions } from './healthcheck.ts';
import type { LogsOptions } from './logs.ts';
import type { List, LsOptions } from './ls.ts';
import type { PrintOptions } from './status.ts';

// The commands themselves are loaded when they run, so that other commands start quickly.

/** Words that may follow a command, by command. They equal those of the commands themselves; a test compares them. */
export const WORDS = {
  ls: ['upstreams', 'items', 'clients', 'sessions', 'streams', 'calls', 'config'],
  explain: ['tool', 'prompt', 'resource'],
  completion: ['bash', 'zsh', 'fish'],
  'log-level': ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'],
  config: ['diff'],
  key: KEY_WORDS,
} as const;

/** Adds the options that choose a running gateway, and `--json`. */
function onGateway(command: Command): Command {
  return command
    .option('-c, --config <file>', 'the config file of the gateway (default: found as "run" finds it)')
    .option('--state-dir <folder>', 'the state directory of the gateway')
    .option('--url <url>', "the operator's port of a gateway elsewhere; its key is in LINKSPAN_OPERATOR_KEY")
    .option('--json', 'print JSON, also for errors', false);
}

/**
 * Adds the commands that talk to a running gateway.
 *
 * @param onCode receives the exit code of the command.
 */
export function addOperatorCommands(program: Command, onCode: (code: number) => void): void {
  onGateway(program.command('status'))
    .description('Show the running gateway and its upstreams. Exits with 1 if it is not ready.')
    .action(async (options: PrintOptions) => {
      const { status } = await import('./status.ts');
      onCode(await status(options));
    });

  onGateway(program.command('ls'))
    .description('List what the running gateway has.')
    .addArgument(new Argument('[list]', 'the list to print').choices(WORDS.ls).default('upstreams'))
    .option('--view <endpoint>', 'items: the endpoint /mcp/<endpoint> (default: /mcp)')
    .option('--upstream <id>', 'items: only those of this upstream')
    .addOption(new Option('--era <era>', 'items: those for clients of this era').choices(['legacy', 'modern']))
    .action(async (list: List, options: LsOptions) => {
      const { ls } = await import('./ls.ts');
      onCode(await ls(list, options));
    });

  onGateway(program.command('logs'))
    .description('Print the latest lines of the log.')
    .option('-f, --follow', 'go on with new lines', false)
    .option('--upstream <id>', 'only lines about this upstream')
    .action(async (options: LogsOptions) => {
      const { logs } = await import('./logs.ts');
      onCode(await logs(options));
    });

  onGateway(program.command('call'))
    .description(
      'Call a tool once, as an operator; the principal is printed. Exits with 5 if the tool reports an error.',
    )
    .argument('<tool>', `the published name, as in "${COMMAND} ls items"`)
    .argument('[arguments...]', 'name=value for each, or one JSON object')
    .option('--view <endpoint>', 'the endpoint /mcp/<endpoint> (default: /mcp)')
    .action(async (tool: string, args: readonly string[], options: CallCommandOptions) => {
      const { call } = await import('./call.ts');
      onCode(await call(tool, args, options));
    });

  onGateway(program.command('explain'))
    .description('Say whether a principal may use an item, and why. Exits with 1 if it may not.')
    .usage('[options] --as <who> <kind> <name>')
    .addArgument(new Argument('<kind>', 'the kind of the item').choices(WORDS.explain))
    .argument('<name>', `the published name or URI, as in "${COMMAND} ls items"`)
    .requiredOption('--as <who>', 'the principal: JSON, a file with the payload of a token, or the name of an API key')
    .option('--args <json>', 'the arguments of the call')
    .option('--offline', 'ask the config file and the last lists, and no running gateway', false)
    .option('--view <endpoint>', 'the endpoint /mcp/<endpoint> (default: /mcp)')
    .action(async (kind: ExplainedKind, name: string, options: ExplainOptions) => {
      const { explain } = await import('./explain.ts');
      onCode(await explain(kind, name, options));
    });

  onGateway(program.command('restart'))
    .description('Open new connections to an upstream and close the old ones. Enables a drained one again.')
    .argument('<upstream>', 'its id')
    .option('--wait <seconds>', 'longest wait for calls in flight (default: 30)')
    .action(async (upstream: string, options: DrainOptions) => {
      const { restart } = await import('./actions.ts');
      onCode(await restart(upstream, options));
    });

  onGateway(program.command('drain'))
    .description('Take an upstream out of service after its calls; without one, ask load balancers for no new clients.')
    .argument('[upstream]', 'its id')
    .option('--wait <seconds>', 'longest wait for calls in flight (default: 60)')
    .option('--undo', 'without an upstream: take new clients again', false)
    .action(async (upstream: string | undefined, options: DrainOptions) => {
      const { drain } = await import('./actions.ts');
      onCode(await drain(upstream, options));
    });

  onGateway(program.command('end-session'))
    .description('End a session for good; its client opens a new one.')
    .argument('<id>', `as in "${COMMAND} ls sessions"`)
    .action(async (id: string, options: PrintOptions) => {
      const { endSession } = await import('./actions.ts');
      onCode(await endSession(id, options));
    });

  onGateway(program.command('rotate-keys'))
    .description('Seal session ids, cursors and task ids with a new key.')
    .option('--grace <duration>', 'validity of older ones; 0s ends all sessions (default: sessions.maxAge)')
    .action(async (options: PrintOptions & { readonly grace?: string }) => {
      const { rotateKeys } = await import('./actions.ts');
      onCode(await rotateKeys(options));
    });

  onGateway(program.command('log-level'))
    .description('Print the level of the log, or change it until the gateway stops.')
    .addArgument(new Argument('[level]', 'the lowest level that is written').choices(WORDS['log-level']))
    .action(async (level: string | undefined, options: PrintOptions) => {
      const { logLevel } = await import('./actions.ts');
      onCode(await logLevel(level, options));
    });

  onGateway(program.command('reload'))
    .description('Read the config file again and apply it if it is valid.')
    .action(async (options: PrintOptions) => {
      const { reload } = await import('./actions.ts');
      onCode(await reload(options));
    });

  const config = program.command('config').description('Compare the config file with the running config.');
  onGateway(config.command('diff'))
    .description('Print how the file differs from the running config. Exits with 1 if it does.')
    .action(async (options: PrintOptions) => {
      const { configDiff } = await import('./actions.ts');
      onCode(await configDiff(options));
    });

  onGateway(program.command('healthcheck'))
    .description('Exit with 0 if the gateway is alive; for containers. Needs no key.')
    .option('--ready', 'ask whether it is ready for clients', false)
    .action(async (options: HealthcheckOptions) => {
      const { healthcheck } = await import('./healthcheck.ts');
      onCode(await healthcheck(options));
    });

  program
    .command('completion')
    .description('Print the completions of a shell.')
    .addArgument(new Argument('<shell>', 'the shell').choices(WORDS.completion))
    .addHelpText(
      'after',
      '\nExample:\n  linkspan completion bash > ~/.local/share/bash-completion/completions/linkspan',
    )
    .action(async (shell: 'bash' | 'zsh' | 'fish') => {
      const { completion } = await import('./completion.ts');
      onCode(completion(shell, completables(program)));
    });
}

/** Returns the commands of a program with their options, for completions. */
function completables(program: Command): readonly Completable[] {
  const words: Readonly<Record<string, readonly string[]>> = WORDS;
  return program.commands.map((command) => ({
    name: command.name(),
    options: command.options.map(({ long, short }) => long ?? short ?? '').filter((option) => option !== ''),
    words: words[command.name()] ?? [],
  }));
}
