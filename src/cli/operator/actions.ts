import { COMMAND } from '../../command-name.ts';
import type { LogLevel } from '../../config/values/config.ts';
import { DURATION, durationMs } from '../../config/schema/units.ts';
import {
  configDiffAnswer,
  doneAnswer,
  logLevelAnswer,
  reloadAnswer,
  restartAnswer,
} from '../../operator/admin/answers.ts';
import { type AdminCall, ask } from './admin-client.ts';
import { CliError, EXIT } from './cli-error.ts';
import { printAnswer } from './output.ts';
import type { PrintOptions } from './status.ts';

export interface DrainOptions extends PrintOptions {
  /** Longest wait for calls in flight, in seconds. */
  readonly wait?: string;
  readonly undo: boolean;
}

/** Beyond the drain, how long the gateway may take to close processes. */
const CLOSING_MS = 30_000;
const MAX_DRAIN_MS = 600_000;
/** Not the empty text of an unset variable, which would be a number. */
const SECONDS = /^\d+(?:\.\d+)?$/;

/** Opens new connections to an upstream. Resolves with 1 if it does not run afterwards. @throws {CliError} */
export async function restart(upstream: string, options: Omit<DrainOptions, 'undo'>): Promise<number> {
  const call = upstreamCall(upstream, 'restart', options.wait);
  const answer = await ask(options, restartAnswer, call);
  printAnswer(options, answer, [answer.message]);
  return answer.isStarted ? codeOf(answer) : EXIT.failed;
}

/** Takes an upstream out of service; without one, makes `/readyz` refuse new clients. @throws {CliError} */
export async function drain(upstream: string | undefined, options: DrainOptions): Promise<number> {
  if (upstream !== undefined) {
    if (options.undo)
      throw new CliError(EXIT.usage, `to put an upstream into service again: ${COMMAND} restart ${upstream}`);
    return await act(options, upstreamCall(upstream, 'disable', options.wait));
  }
  return await act(options, { method: 'POST', path: '/drain', body: { isDraining: !options.undo } });
}

/** Ends a session. @throws {CliError} */
export async function endSession(id: string, options: PrintOptions): Promise<number> {
  return await act(options, { method: 'DELETE', path: `/sessions/${encodeURIComponent(id)}` });
}

/** Adds a sealing key. `grace` is a duration such as `30d`. @throws {CliError} */
export async function rotateKeys({ grace, ...options }: PrintOptions & { readonly grace?: string }): Promise<number> {
  if (grace !== undefined && !DURATION.test(grace)) {
    throw new CliError(EXIT.usage, `--grace: expected a duration such as "1h", got ${JSON.stringify(grace)}`);
  }
  const body = grace === undefined ? {} : { graceSeconds: durationMs(grace) / 1_000 };
  return await act(options, { method: 'POST', path: '/keys/rotate', body });
}

/** Prints the level of the log, or sets it. @throws {CliError} */
export async function logLevel(level: LogLevel | undefined, options: PrintOptions): Promise<number> {
  const change: Partial<AdminCall> = level === undefined ? {} : { method: 'PUT', body: { level } };
  const answer = await ask(options, logLevelAnswer, { path: '/log-level', ...change });
  printAnswer(options, answer, [answer.message ?? answer.level]);
  return codeOf(answer);
}

/** Makes the gateway read its config again. Resolves with 1 if it refuses the file. @throws {CliError} */
export async function reload(options: PrintOptions): Promise<number> {
  const call = { method: 'POST', path: '/config/reload', body: {}, timeoutMs: MAX_DRAIN_MS } as const;
  const answer = await ask(options, reloadAnswer, call);
  const { message, changes, problems, config } = answer;
  printAnswer(options, answer, [message, ...changes, ...problems, ...config.atRestart]);
  return answer.outcome === 'rejected' ? EXIT.failed : EXIT.ok;
}

/** Prints how the config file differs from the running config. Resolves with 1 if it does, or cannot be used. @throws {CliError} */
export async function configDiff(options: PrintOptions): Promise<number> {
  const answer = await ask(options, configDiffAnswer, { path: '/config/diff' });
  const { file } = answer.config;
  const change = answer.problems.length > 0 ? `${file} cannot be used:` : `${file} differs from the running config:`;
  const first = answer.isDifferent ? change : 'The file and the running config are equal.';
  printAnswer(options, answer, [first, ...answer.problems, ...answer.changes]);
  return answer.isDifferent ? EXIT.failed : EXIT.ok;
}

function upstreamCall(upstream: string, action: 'restart' | 'disable', wait: string | undefined): AdminCall {
  if (wait !== undefined && !(SECONDS.test(wait) && Number(wait) * 1_000 <= MAX_DRAIN_MS)) {
    throw new CliError(
      EXIT.usage,
      `--wait: expected seconds from 0 to ${MAX_DRAIN_MS / 1_000}, got ${JSON.stringify(wait)}`,
    );
  }
  return {
    method: 'POST',
    path: `/upstreams/${encodeURIComponent(upstream)}/${action}`,
    body: wait === undefined ? {} : { drainSeconds: Number(wait) },
    timeoutMs: MAX_DRAIN_MS + CLOSING_MS,
  };
}

async function act(options: PrintOptions, call: AdminCall): Promise<number> {
  const answer = await ask(options, doneAnswer, call);
  printAnswer(options, answer, [answer.message]);
  return codeOf(answer);
}

/** Returns the exit code of a change, which has to hold at all replicas. */
function codeOf({ unconfirmed }: { readonly unconfirmed?: readonly string[] | undefined }): number {
  return unconfirmed === undefined ? EXIT.ok : EXIT.failed;
}
