import { unreachable } from './admin-client.ts';
import { CliError, EXIT } from './cli-error.ts';
import { oneLine } from '../../peer-text.ts';
import { jsonText, print } from './output.ts';
import type { PrintOptions } from './status.ts';
import { askPort, isOk, type PortResponse, textOf } from './operator-port.ts';
import { findGateway } from './running-gateway.ts';

export interface HealthcheckOptions extends PrintOptions {
  /** Fails if the gateway is not ready, and not only if it is not alive. */
  readonly ready: boolean;
}

const TIMEOUT_MS = 5_000;

/** Asks a gateway whether it is alive. Needs no key. Resolves with 0 if it is, with 1 if it is not ready. @throws {CliError} */
export async function healthcheck(options: HealthcheckOptions): Promise<number> {
  const target = await findGateway(options);
  const path = options.ready ? '/readyz' : '/livez';
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  let response: PortResponse;
  let text: string;
  try {
    response = await askPort(`${target.url}${path}`, { signal });
    text = await textOf(response, signal);
  } catch (thrown) {
    throw unreachable(target, thrown);
  }
  const isHealthy = isOk(response);
  if (options.json) print(jsonText({ isHealthy, url: `${target.url}${path}`, status: response.status }));
  else if (!isHealthy)
    throw new CliError(EXIT.failed, `${target.url}${path} answered ${response.status}: ${oneLine(text)}`);
  return isHealthy ? EXIT.ok : EXIT.failed;
}
