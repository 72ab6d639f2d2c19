import { COMMAND } from '../../command-name.ts';
import { Argument, type Command, Option } from 'commander';
import { LOG_LEVELS } from '../../config/values/config.ts';
import type { ActionOf } from '../action.ts';
import type { Completable, Shell } from './completion.ts';
import type { ExplainedKind } from './explain.ts';
import type { List } from './ls.ts';

export const LISTS: readonly List[] = ['upstreams', 'items', 'clients', 'sessions', 'streams', 'calls', 'config'];
const KINDS: readonly ExplainedKind[] = ['tool', 'prompt', 'resource'];
export const SHELLS: readonly Shell[] = ['bash', 'zsh', 'fish'];

/** Adds the options that choose a running gateway, and `--json`. */
function onGateway(command: Command): Command {
  return command
    .option('-c, --config <file>', 'the config file of the gateway (default: found as "run" finds it)')
    .option('--state-dir <folder>', 'the state directory of the gateway')
    .option('--url <url>', "the operator's port of a gateway elsewhere; its key is in LINKSPAN_OPERATOR_KEY")
    .option('--json', 'print JSON, also for errors', false);
}

/** Adds the commands that talk to a running gateway. */
export function addOperatorCommands(program: Command, runs: ActionOf): void {
  onGateway(program.command('status'))
    .description('Show the running gateway and its upstreams. Exits with 1 if it is not ready.')
    .action(runs(async () => (await import('./status.ts')).status));

  onGateway(program.command('ls'))
    .description('List what the running gateway has.')
    .addArgument(new Argument('[list]', 'the list to print').choices(LISTS).default('upstreams'))
    .option('--view <endpoint>', 'items: the endpoint /mcp/<endpoint> (default: /mcp)')
    .option('--upstream <id>', 'items: only those of this upstream')
    .addOption(new Option('--era <era>', 'items: those for clients of this era').choices(['legacy', 'modern']))
    .action(runs(async () => (await import('./ls.ts')).ls));

  onGateway(program.command('logs'))
    .description('Print the latest lines of the log.')
    .option('-f, --follow', 'go on with new lines', false)
    .option('--upstream <id>', 'only lines about this upstream')
    .action(runs(async () => (await import('./logs.ts')).logs));

  onGateway(program.command('call'))
    .description(
      'Call a tool once, as an operator; the principal is printed. Exits with 5 if the tool reports an error.',
    )
    .argument('<tool>', `the published name, as in "${COMMAND} ls items"`)
    .argument(
      '[arguments...]',
      `name=value for each, or one JSON object; a value such as 1 or true is text as name='"1"'`,
    )
    .option('--view <endpoint>', 'the endpoint /mcp/<endpoint> (default: /mcp)')
    .action(runs(async () => (await import('./call.ts')).call));

  onGateway(program.command('explain'))
    .description('Say whether a principal may use an item, and why. Exits with 1 if it may not.')
    .usage('[options] --as <who> <kind> <name>')
    .addArgument(new Argument('<kind>', 'the kind of the item').choices(KINDS))
    .argument('<name>', `the published name or URI, as in "${COMMAND} ls items"`)
    .requiredOption('--as <who>', 'the principal: JSON, a file with the payload of a token, or the name of an API key')
    .option('--args <json>', 'the arguments of the call')
    .option('--offline', 'ask the config file and the last lists, and no running gateway', false)
    .option('--view <endpoint>', 'the endpoint /mcp/<endpoint> (default: /mcp)')
    .action(runs(async () => (await import('./explain.ts')).explain));

  onGateway(program.command('restart'))
    .description('Open new connections to an upstream and close the old ones. Enables a drained one again.')
    .argument('<upstream>', 'its id')
    .option('--wait <seconds>', 'longest wait for calls in flight (default: 30)')
    .action(runs(async () => (await import('./actions.ts')).restart));

  onGateway(program.command('drain'))
    .description('Take an upstream out of service after its calls; without one, ask load balancers for no new clients.')
    .argument('[upstream]', 'its id')
    .option('--wait <seconds>', 'longest wait for calls in flight (default: 60)')
    .option('--undo', 'without an upstream: take new clients again', false)
    .action(runs(async () => (await import('./actions.ts')).drain));

  onGateway(program.command('end-session'))
    .description('End a session for good; its client opens a new one.')
    .argument('<id>', `as in "${COMMAND} ls sessions"`)
    .action(runs(async () => (await import('./actions.ts')).endSession));

  onGateway(program.command('rotate-keys'))
    .description('Seal session ids, cursors and task ids with a new key.')
    .option('--grace <duration>', 'validity of older ones; 0s ends all sessions (default: sessions.maxAge)')
    .action(runs(async () => (await import('./actions.ts')).rotateKeys));

  onGateway(program.command('log-level'))
    .description('Print the level of the log, or change it until the gateway stops.')
    .addArgument(new Argument('[level]', 'the lowest level that is written').choices(LOG_LEVELS))
    .action(runs(async () => (await import('./actions.ts')).logLevel));

  onGateway(program.command('reload'))
    .description('Read the config file again and apply it if it is valid.')
    .action(runs(async () => (await import('./actions.ts')).reload));

  const config = program.command('config').description('Compare the config file with the running config.');
  onGateway(config.command('diff'))
    .description('Print how the file differs from the running config. Exits with 1 if it does.')
    .action(runs(async () => (await import('./actions.ts')).configDiff));

  onGateway(program.command('healthcheck'))
    .description('Exit with 0 if the gateway is alive; for containers. Needs no key.')
    .option('--ready', 'ask whether it is ready for clients', false)
    .action(runs(async () => (await import('./healthcheck.ts')).healthcheck));

  program
    .command('completion')
    .description('Print the completions of a shell.')
    .addArgument(new Argument('<shell>', 'the shell').choices(SHELLS))
    .addHelpText(
      'after',
      '\nExample:\n  linkspan completion bash > ~/.local/share/bash-completion/completions/linkspan',
    )
    .action(
      runs(async () => {
        const { completion } = await import('./completion.ts');
        return (shell: Shell) => completion(shell, completables(program));
      }),
    );
}

/** Returns the commands of a program with their options, for completions. */
function completables(program: Command): readonly Completable[] {
  const visible = program.createHelp().visibleCommands(program);
  return visible.map((command) => ({
    name: command.name(),
    options: command.options.map(({ long, short }) => long ?? short ?? '').filter((option) => option !== ''),
    words: [
      ...command.commands.map((inner) => inner.name()),
      ...command.registeredArguments.flatMap(({ argChoices = [] }) => argChoices),
    ],
  }));
}
