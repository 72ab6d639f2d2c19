import { hash } from 'node:crypto';
import { accountText } from '../../config/values/credentials.ts';
import type { HttpTarget, UpstreamConfig } from '../../config/values/upstream-config.ts';
import { RawObject } from '../../json/json.ts';
import { isLegacyRevision } from '../../protocol/revisions.ts';
import type { Attachment } from '../../upstream/link/attachment.ts';
import type { Link, Upstreams } from '../exchange/connection-holder.ts';
import type { Sealer } from './sealer.ts';

/**
 * Seals the texts by which a session is continued at its upstreams after a restart, or by another process. They contain session ids and cookies of upstreams,
 * which no store may see.
 */
export class Attachments {
  readonly #sealer: Sealer;
  readonly #upstreams: Upstreams;

  constructor(sealer: Sealer, upstreams: Upstreams) {
    this.#sealer = sealer;
    this.#upstreams = upstreams;
  }

  /**
   * Returns the text for the session that a link has at its upstream; undefined if there is none, or other users share the link.
   *
   * @param expiresMs ms since the epoch.
   */
  async seal({ upstream: id, connection, hello }: Link, expiresMs: number): Promise<string | undefined> {
    const config = this.#upstreams.get(id)?.config;
    const { session } = connection;
    if (session === undefined || config?.isolation !== 'session') return undefined;
    const { revision, capabilities, serverInfo, instructions } = hello;
    const payload = {
      upstream: id,
      target: targetOf(config),
      session: session.id,
      ...(session.cookies.length === 0 ? {} : { cookies: session.cookies }),
      revision,
      capabilities: capabilities.toString(),
      serverInfo: serverInfo.toString(),
      ...(instructions === undefined ? {} : { instructions }),
    };
    return await this.#sealer.seal('attachment', payload, expiresMs);
  }

  /** Returns the session that a text is about; undefined if the text is not valid any more, or the upstream is another server now. */
  async unseal(id: string, text: string): Promise<Attachment | undefined> {
    const config = this.#upstreams.get(id)?.config;
    const payload = await this.#sealer.unseal('attachment', text, Date.now());
    if (config === undefined || payload === undefined) return undefined;
    const { upstream, target, session, cookies, revision, capabilities, serverInfo, instructions } = payload;
    if (upstream !== id || target !== targetOf(config) || typeof session !== 'string') return undefined;
    if (typeof revision !== 'string' || !isLegacyRevision(revision)) return undefined;
    if (typeof capabilities !== 'string' || typeof serverInfo !== 'string') return undefined;
    const hello = {
      revision,
      capabilities: RawObject.parse(capabilities),
      serverInfo: RawObject.parse(serverInfo),
      instructions: typeof instructions === 'string' ? instructions : undefined,
    };
    return { session: { id: session, cookies: textsOf(cookies) }, hello, target };
  }
}

/** Returns the texts of a list; none if it is no list, as in a text of an older version. */
function textsOf(list: unknown): readonly string[] {
  return Array.isArray(list) ? list.filter((item) => typeof item === 'string') : [];
}

/**
 * Returns a text that is equal as long as the server and the credentials for it are. The client features that it is told of must be equal
 * too. A session of another account must not be continued.
 */
export function targetOf({ target, clientFeatures }: UpstreamConfig): string {
  const parts = target.kind === 'stdio' ? [] : [target.url, target.headers, target.tls?.cert, ...accountOf(target)];
  return hash('sha256', JSON.stringify([...parts, clientFeatures]), 'base64url');
}

/** Returns the account of the credentials that the gateway gets, if it gets any. A renewed secret is no other account; other parameters may name one. */
function accountOf({ auth }: HttpTarget): readonly unknown[] {
  if (auth === undefined) return [];
  return [accountText(auth), auth.kind === 'identity' ? auth.audience : auth.parameters];
}
