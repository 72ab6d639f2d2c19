import { messageOf, systemCode } from '../../thrown.ts';
import { jsonOf } from '../../json/record.ts';
import type { z } from 'zod';
import { refusalAnswer } from '../../operator/admin/answers.ts';
import { ADMIN_PATH } from '../../operator/admin/routes.ts';
import { CliError, EXIT } from './cli-error.ts';
import { askPort, isOk, type PortResponse, textOf } from './operator-port.ts';
import { findGateway, type RunningGateway, type TargetOptions } from './running-gateway.ts';

const TIMEOUT_MS = 15_000;

/** A request to the admin API. */
export interface AdminCall {
  readonly method?: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** Below the path of the API. */
  readonly path: string;
  readonly body?: object;
  readonly timeoutMs?: number;
}

/** As {@link askGateway}, for the gateway that the options choose. @throws {CliError} */
export async function ask<S extends z.ZodType>(
  options: TargetOptions,
  schema: S,
  call: AdminCall,
): Promise<z.output<S>> {
  return await askGateway(await findGateway(options), schema, call);
}

/** Sends a request to the admin API of a gateway. Resolves with the checked answer. @throws {CliError} */
export async function askGateway<S extends z.ZodType>(
  target: RunningGateway,
  schema: S,
  call: AdminCall,
): Promise<z.output<S>> {
  const signal = AbortSignal.timeout(call.timeoutMs ?? TIMEOUT_MS);
  const response = await send(target, call, signal);
  const checked = schema.safeParse(jsonOf(await bodyOf(response, target, signal)));
  if (checked.success) return checked.data;
  const message = `${target.url} answers in a form that this version of linkspan does not know; use the version of the gateway`;
  throw new CliError(EXIT.failed, message, checked.error);
}

/** Sends a request, and resolves with its response if the gateway accepts it. Only the signal bounds its time. @throws {CliError} */
export async function send(
  target: RunningGateway,
  { method = 'GET', path, body }: AdminCall,
  signal: AbortSignal,
): Promise<PortResponse> {
  const { url, token } = target;
  if (token === undefined) {
    throw new CliError(
      EXIT.unauthorized,
      'set LINKSPAN_OPERATOR_KEY to a key of gateway.operatorKeys; --url needs one',
    );
  }
  const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
  const sent = { method, headers, signal, ...(body === undefined ? {} : { body: JSON.stringify(body) }) };
  let response: PortResponse;
  try {
    response = await askPort(`${url}${ADMIN_PATH}${path}`, sent);
  } catch (thrown) {
    throw unreachable(target, thrown);
  }
  if (isOk(response)) return response;
  const refusal = refusalAnswer.safeParse(jsonOf(await bodyOf(response, target, signal)));
  const message = refusal.success
    ? refusal.data.message
    : `${url} answered ${response.status}; is it the operator's port?`;
  const isRefused = response.status === 401 || response.status === 403;
  throw new CliError(isRefused ? EXIT.unauthorized : EXIT.failed, message);
}

const NOT_HTTPS = 'ERR_SSL_WRONG_VERSION_NUMBER';
/** By the code of a failure that no start of the gateway mends. */
const WHAT_TO_DO: ReadonlyMap<string, string> = new Map([
  ['ENOTFOUND', 'No host has this name; correct --url'],
  [NOT_HTTPS, "The port does not speak HTTPS, and an operator's port speaks HTTP; write --url http://…"],
]);

/** Returns the failure of a request that got no answer. */
export function unreachable({ url, file }: RunningGateway, thrown: unknown): CliError {
  if (thrown instanceof Error && thrown.name === 'TimeoutError') {
    return new CliError(EXIT.unreachable, `${url} did not answer in time; it may be overloaded`, thrown);
  }
  const where = file === undefined ? '' : ` (process ${file.pid}, started ${file.startedAt}, of ${file.configFile})`;
  const code = systemCode(thrown) ?? 'no connection';
  const why = code === 'EPROTO' && messageOf(thrown).includes('wrong version number') ? NOT_HTTPS : code;
  const whatToDo = WHAT_TO_DO.get(why) ?? 'If it has ended, start it again';
  return new CliError(EXIT.unreachable, `no gateway answers at ${url}${where}: ${why}. ${whatToDo}`, thrown);
}

async function bodyOf(response: PortResponse, target: RunningGateway, signal: AbortSignal): Promise<string> {
  try {
    return await textOf(response, signal);
  } catch (thrown) {
    throw unreachable(target, thrown);
  }
}
