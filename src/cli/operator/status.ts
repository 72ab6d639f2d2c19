import { COMMAND } from '../../command-name.ts';
import {
  type CallsAnswer,
  callsAnswer,
  type ListGaps,
  statusAnswer,
  type StatusAnswer,
  type UpstreamAnswer,
  upstreamsAnswer,
} from '../../operator/admin/answers.ts';
import { askGateway } from './admin-client.ts';
import { EXIT } from './cli-error.ts';
import { oneLine } from '../../peer-text.ts';
import { countText, durationText, jsonText, megabytes, print, table, unansweredText } from './output.ts';
import { findGateway, type TargetOptions } from './running-gateway.ts';

/** The options of commands that print an answer. */
export interface PrintOptions extends TargetOptions {
  readonly json: boolean;
}

/** Prints the state of the running gateway and its upstreams. Resolves with 1 if the gateway is not ready. @throws {CliError} */
export async function status(options: PrintOptions): Promise<number> {
  const target = await findGateway(options);
  const [state, { upstreams }, { calls }] = await Promise.all([
    askGateway(target, statusAnswer, { path: '/status' }),
    askGateway(target, upstreamsAnswer, { path: '/upstreams' }),
    askGateway(target, callsAnswer, { path: '/calls' }),
  ]);
  print(options.json ? jsonText({ ...state, upstreams }) : statusText(state, upstreams, calls, Date.now()));
  return state.isReady ? EXIT.ok : EXIT.failed;
}

/** Returns the state of a gateway for people. @param nowMs wall clock. */
function statusText(
  state: StatusAnswer,
  upstreams: readonly UpstreamAnswer[],
  calls: CallsAnswer['calls'],
  nowMs: number,
): string {
  const uptime = durationText((nowMs - Date.parse(state.startedAt)) / 1_000);
  const { sessions, clientGroups, requestsInFlight, parkedCalls } = state;
  const rows = [
    ['Linkspan', `${state.version}, process ${state.pid}, up ${uptime}, ${megabytes(state.memoryBytes)}`],
    ['Config', `${state.config.file}, loaded ${state.config.loadedAt}`],
    ...configRows(state.config),
    ['Clients', state.endpoint],
    ['Ready', readyText(state, 'yes', 'no')],
    [
      'Load',
      [
        countText(sessions, 'session'),
        `${countText(clientGroups, 'client')} without a session`,
        `${countText(requestsInFlight, 'request')} under way`,
        `${countText(parkedCalls, 'call')} waiting for clients`,
      ].join(', '),
    ],
    ...replicaRows(state),
  ];
  return `${table(rows)}${unansweredText(state.unanswered)}\n${upstreamTable(upstreams, calls)}`;
}

/** Returns whether a gateway is ready, with the reasons against it, or for which it serves less than it should. */
function readyText({ isReady, reasons }: Pick<StatusAnswer, 'isReady' | 'reasons'>, yes: string, no: string): string {
  const why = oneLine(reasons.join('; '));
  if (!isReady) return `${no}: ${why}`;
  return why === '' ? yes : `${yes}, but: ${why}`;
}

/** Returns the replicas that have answered, if there are several. */
function replicaRows({ replicas = [], config, version }: StatusAnswer): readonly (readonly string[])[] {
  return replicas.map((one, index) => {
    const notes = [
      readyText(one, 'ready', 'not ready'),
      ...(one.isAsked ? ['this one was asked'] : []),
      ...(one.version === version ? [] : [`version ${one.version}`]),
      ...(one.configHash === config.hash ? [] : [`config ${one.configHash}`]),
    ];
    return [index === 0 ? 'Replicas' : '', oneLine(`${one.replica}: ${notes.join(', ')}`)];
  });
}

/** Returns what the file on disk has that does not run. */
function configRows({ file, lastGoodAt, rejected, atRestart }: StatusAnswer['config']): readonly (readonly string[])[] {
  const problems =
    rejected === undefined ? [] : `The file was rejected at ${rejected.at}: ${rejected.reason}`.split('\n');
  return [
    ...(lastGoodAt === undefined
      ? []
      : [['', `The upstreams are those of ${lastGoodAt}, because the file was broken at the start. Correct ${file}`]]),
    ...problems.map((problem) => ['', oneLine(problem)]),
    ...(atRestart.length === 0
      ? []
      : [['', `${countText(atRestart.length, 'changed setting')} for the next start: ${COMMAND} config diff`]]),
  ];
}

const TROUBLES: ReadonlySet<UpstreamAnswer['state']> = new Set([
  'degraded',
  'needs-authorization',
  'failed',
  'stopped',
]);

/** Returns the states of an upstream at replicas where clients have less of it than elsewhere. One that was not used yet has no trouble. */
function replicaNotes({ replicas = [], isDisabled: isAny }: UpstreamAnswer): readonly string[] {
  return replicas
    .filter(({ state, isDisabled }) => TROUBLES.has(state) || isDisabled !== isAny)
    .map(({ replica, state, reason, isDisabled }) => {
      const why = reason === undefined ? '' : ` (${reason})`;
      return `at ${replica}: ${isDisabled ? 'disabled' : state}${why}`;
    });
}

const SHOWN_DIFFERENCES = 5;

/** Returns the differences from the lock, and how to accept them. */
function lockNotes({ id, lock }: UpstreamAnswer): readonly string[] {
  if (lock === undefined || lock.differences === 0) return [];
  const { differences, withheld, details } = lock;
  const effect = withheld === 0 ? 'nothing is withheld' : `${countText(withheld, 'item')} withheld`;
  const more = differences - SHOWN_DIFFERENCES;
  return [
    `Other than in the lock: ${countText(differences, 'definition')}, ${effect}. Review with: ${COMMAND} lock --check --upstream ${id}`,
    ...details.slice(0, SHOWN_DIFFERENCES).map((line) => `  ${line}`),
    ...(more > 0 ? [`  and ${more} more`] : []),
  ];
}

const SHOWN_PROBLEMS = 5;

/** Returns what clients do not get of the lists of an upstream. */
export function gapNotes({ id, listProblems, emptyAt }: ListGaps & { readonly id: string }): readonly string[] {
  const more = listProblems.length - SHOWN_PROBLEMS;
  return [
    ...(emptyAt.length === 0 ? [] : [`Clients get nothing of it at ${emptyAt.join(' and ')}`]),
    ...listProblems.slice(0, SHOWN_PROBLEMS),
    ...(more > 0 ? [`and more: ${COMMAND} ls items --upstream ${id}`] : []),
  ];
}

function listedText({ isListed, isForCallers, tools }: UpstreamAnswer): string {
  if (isListed) return countText(tools, 'tool');
  return isForCallers ? 'lists depend on the caller' : 'never listed';
}

/** Returns since when an upstream is not well, and when it may be tried again; undefined for one that is. */
function sinceNote({ state, since, retryInSeconds: seconds }: UpstreamAnswer): string | undefined {
  if (state !== 'starting' && !TROUBLES.has(state)) return undefined;
  return `Since ${since}${seconds === undefined ? '' : `, not tried again for ${durationText(seconds)}`}`;
}

/** A call is shown below its upstream when it has waited for so long. */
const LONG_CALL_SECONDS = 60;

/** Returns a line about calls that an upstream has not answered for a while. @param calls the longest first. */
function waitingNote({ id }: UpstreamAnswer, calls: CallsAnswer['calls']): string | undefined {
  const waiting = calls.filter(
    ({ state, upstream, seconds }) => state === 'in-flight' && upstream === id && seconds >= LONG_CALL_SECONDS,
  );
  const [longest] = waiting;
  if (longest === undefined) return undefined;
  const count = countText(waiting.length, 'request');
  return `${count} under way for longer than a minute, the oldest for ${durationText(longest.seconds)}. See: ${COMMAND} ls calls`;
}

/** Returns the upstreams for people, each with its reason and the next step below it. @param calls the longest first. */
export function upstreamTable(upstreams: readonly UpstreamAnswer[], calls: CallsAnswer['calls'] = []): string {
  if (upstreams.length === 0) return 'There are no upstreams.\n';
  const rows = upstreams.map((one) => [
    one.id,
    one.isDisabled ? 'disabled' : one.state,
    one.transport,
    listedText(one),
    countText(one.connections, 'connection'),
    one.memoryBytes === undefined ? '' : `${countText(one.processes ?? 0, 'process')}, ${megabytes(one.memoryBytes)}`,
  ]);
  const lines = table(rows).split('\n');
  return upstreams
    .map((one, index) => {
      const notes = [
        one.reason,
        sinceNote(one),
        one.nextStep,
        waitingNote(one, calls),
        ...replicaNotes(one),
        ...gapNotes(one),
        ...lockNotes(one),
      ]
        .filter((note) => note !== undefined)
        .map((note) => `    ${oneLine(note)}\n`);
      return `${lines[index] ?? ''}\n${notes.join('')}`;
    })
    .join('');
}
