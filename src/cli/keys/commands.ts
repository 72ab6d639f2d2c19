import type { Command } from 'commander';
import type { ActionOf } from '../action.ts';

function onKeys(command: Command): Command {
  return command
    .option('-c, --config <file>', 'the config file whose keys these are (default: found as "run" finds it)')
    .option('-f, --file <file>', 'a key file, without any config')
    .option('--json', 'print JSON, also for errors', false);
}

/**
 * Adds the commands that change the API keys of clients, in the file or the Redis of a config. No gateway has to run; those that run
 * follow within a second.
 */
export function addKeyCommands(program: Command, runs: ActionOf): void {
  const key = program.command('key').description('Make, list, revoke and rotate the API keys of clients.');

  onKeys(key.command('create'))
    .description('Make a key and print it once; only its hash is stored.')
    .argument('<name>', 'name of the client or user; the principal, also in logs')
    .option('--owner <owner>', 'the person who is responsible for it')
    .option('--groups <groups>', 'groups for access rules, with commas between them')
    .option('--expires <when>', 'a duration such as 90d, or a date such as 2027-01-31 (default: never)')
    .action(runs(async () => (await import('./keys.ts')).createKey));

  onKeys(key.command('list'))
    .description('List the keys with owner, groups, expiry and last use.')
    .action(runs(async () => (await import('./keys.ts')).listKeys));

  onKeys(key.command('revoke'))
    .description('Remove keys. Their sessions and streams end within a second.')
    .argument('<name-or-id>', 'the name, for all keys of it, or the id of one')
    .action(runs(async () => (await import('./keys.ts')).revokeKey));

  onKeys(key.command('rotate'))
    .description('Make another key of a name, print it once, and let the old ones expire.')
    .argument('<name>', 'its name')
    .option('--grace <duration>', 'the time that the old keys stay valid', '1d')
    .option('--expires <when>', 'as of "create" (default: for as long as the last key was made for)')
    .action(runs(async () => (await import('./keys.ts')).rotateKey));
}
