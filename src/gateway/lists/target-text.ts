import { CLIENT_FEATURES, type UpstreamConfig } from '../../config/upstream-config.ts';
import type { UpstreamAuth } from '../../config/credentials.ts';

/**
 * Returns a text that identifies the server behind an upstream's id. A different command or URL is a different server,
 * whose lists are not valid.
 */
export function targetText({ target, clientFeatures }: UpstreamConfig): string {
  // A server may list other items for other accounts.
  const account = target.kind === 'stdio' || target.auth === undefined ? [] : [accountText(target.auth)];
  const parts = target.kind === 'stdio' ? [target.command, ...target.args] : [target.url, ...account];
  // A server may list less for clients with fewer features.
  const isLimited = CLIENT_FEATURES.some((feature) => !clientFeatures.includes(feature));
  return JSON.stringify(isLimited ? [...parts, { clientFeatures }] : parts);
}

/** Returns the account of the gateway at an upstream, without secrets. */
function accountText(auth: UpstreamAuth): string {
  return auth.kind === 'identity' ? auth.kind : `${auth.kind} ${auth.clientId} ${auth.issuer ?? auth.tokenUrl ?? ''}`;
}
