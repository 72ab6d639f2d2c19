import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Principal } from '../../src/policy/principal.ts';
import { InternalKeys } from '../../src/replicas/internal-keys.ts';
import { type ForwardedHandler, type InternalServer, openInternalServer } from '../../src/replicas/internal-server.ts';
import { RemoteOwner } from '../../src/replicas/remote-owner.ts';
import { freshKey } from '../../src/store/key-store.ts';
import { TcpRelay } from '../support/tcp-relay.ts';

export const ANNA: Principal = { key: 'anna', label: 'anna', scopes: ['read'] };

interface ReplicaPair extends AsyncDisposable {
  /** URL of the replica that passes everything on. */
  readonly url: string;
  readonly server: InternalServer;
  readonly relay: TcpRelay;
  readonly owner: RemoteOwner;
  readonly keys: InternalKeys;
  readonly outcomes: string[];
  /** Calls of `forward` that have sent nothing. */
  readonly unsent: string[];
}

/**
 * Starts a replica that handles requests, and one that passes all requests on to it.
 *
 * @param principalOf returns the principal of the requests to a path.
 * @param sending the keys of the replica that passes requests on. Default: those of the other one.
 */
export async function openPair(
  handle: ForwardedHandler,
  view = 'files',
  principalOf: (path: string) => Principal = () => ANNA,
  sending?: InternalKeys,
): Promise<ReplicaPair> {
  const keys = new InternalKeys();
  keys.update([freshKey(Date.now())]);
  const [outcomes, unsent]: [string[], string[]] = [[], []];
  const parts = {
    keys,
    metrics: { countInternalRefusal: () => undefined },
    isSelf: (member: string) => member === 'owner',
    onLimit: () => undefined,
  };
  const server = await openInternalServer({ host: '127.0.0.1', port: 0 }, parts, handle);
  const relay = await TcpRelay.open(server.port);
  const member = { id: 'owner', process: 'p', address: `127.0.0.1:${relay.port}`, version: '1' };
  const owner = new RemoteOwner(member, sending ?? keys, { countForwarded: (outcome) => void outcomes.push(outcome) });
  const front = createServer((incoming, outgoing) => {
    void owner.forward(incoming, outgoing, principalOf(incoming.url ?? ''), view).then((outcome) => {
      if (outcome === 'answered') return;
      unsent.push(incoming.url ?? '');
      outgoing.writeHead(599);
      outgoing.end();
    });
  });
  front.listen(0, '127.0.0.1');
  await once(front, 'listening');
  const address = front.address();
  const url = typeof address === 'object' && address !== null ? `http://127.0.0.1:${address.port}/mcp` : '';
  return {
    url,
    server,
    relay,
    owner,
    keys,
    outcomes,
    unsent,
    [Symbol.asyncDispose]: async () => {
      front.closeAllConnections();
      front.close();
      owner.destroy();
      await relay[Symbol.asyncDispose]();
      await server.close();
    },
  };
}
