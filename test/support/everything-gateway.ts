import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openGateway } from './open-gateway.ts';
import { referenceServers } from './reference-servers.ts';

/** Starts a gateway over a real server, as the upstream of another gateway: it has all methods in all eras and transports. */
export async function startEverything(): Promise<AsyncDisposable & { readonly url: string }> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-everything-'));
  const server = { ...referenceServers(dir).everything, isolation: 'shared', prefix: '', rawUris: true };
  const gateway = await openGateway({ everything: server }, { operator: false });
  return {
    url: gateway.url,
    [Symbol.asyncDispose]: async () => {
      await gateway[Symbol.asyncDispose]();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
