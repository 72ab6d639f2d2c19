/** The upstreams of the matrix, reached through a gateway or directly. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Child } from '../support/child.ts';
import { startGateway } from '../support/gateway.ts';
import { Replicas } from '../support/replicas.ts';
import type { Client } from './client.ts';
import { type Address, LegacyClient } from './client-legacy.ts';
import { ModernClient } from './client-modern.ts';
import { Ledger } from './ledger.ts';
import { DUAL, MODERN, type Revision, type Transport } from './words.ts';

const PROGRAM = fileURLToPath(new URL('upstream.ts', import.meta.url));

/** An upstream over one transport. */
export interface Target extends Place {
  readonly ledger: Ledger;
  addressFor(client: Revision): Address;
}

export interface Place {
  /** The revision of the upstream for clients of the legacy era, if it is dual. */
  readonly upstream: Revision;
  readonly isDual: boolean;
  readonly transport: Transport;
}

interface Started extends Place {
  readonly id: string;
  readonly args: readonly string[];
  readonly url: string | undefined;
  readonly child: Child | undefined;
  readonly ledger: Ledger;
}

/** Returns the revision in which an upstream serves a client of this revision. */
export function facing({ upstream, isDual }: Place, client: Revision): Revision {
  return isDual && client === MODERN ? MODERN : upstream;
}

export async function connect(target: Target, revision: Revision): Promise<Client> {
  const address = target.addressFor(revision);
  return revision === MODERN ? await ModernClient.connect(address) : await LegacyClient.connect(revision, address);
}

async function start(place: Place, root: string): Promise<Started> {
  const { transport, isDual } = place;
  const upstream = isDual ? DUAL : place.upstream;
  const kind = transport === 'stdio' ? 'stdio' : 'http';
  const id = `${kind}-${upstream}`;
  const dir = join(root, id);
  await mkdir(dir, { recursive: true });
  const args = [PROGRAM, upstream, kind, dir];
  const ledger = new Ledger(dir);
  if (kind === 'stdio') return { ...place, id, args, url: undefined, child: undefined, ledger };
  const child = await Child.start(process.execPath, args);
  const url = await child.waitForLine((line) => /listening on (\S+)/.exec(line)?.[1]);
  return { ...place, id, args, url, child, ledger };
}

/** The targets under test, with their end. */
export interface Stage extends AsyncDisposable {
  readonly targets: readonly Target[];
  logs(): string;
}

async function stopAll(started: readonly Started[]): Promise<void> {
  await Promise.all(started.flatMap(({ child }) => (child === undefined ? [] : [child.stop()])));
}

/** @param replicas the number of processes of the gateway. A balancer sends each request to any of them. */
export async function throughGateway(places: readonly Place[], root: string, replicas: number): Promise<Stage> {
  const started = await Promise.all(places.map((place) => start(place, root)));
  const servers = started.map(({ id, transport, args, url }): [string, Readonly<Record<string, unknown>>] => [
    id,
    url === undefined ? { command: process.execPath, args } : { type: transport === 'HTTP+SSE' ? 'sse' : 'http', url },
  ]);
  const file = { mcpServers: Object.fromEntries(servers) };
  const gateway = replicas === 1 ? await startGateway(file) : await Replicas.start(replicas, file, {}, 'at random');
  const { origin } = new URL(gateway.endpoint());
  return {
    targets: started.map(({ id, upstream, isDual, transport, ledger }) => ({
      upstream,
      isDual,
      transport,
      ledger,
      addressFor: (client) => ({
        kind: 'http',
        url: client === '2024-11-05' ? `${origin}/sse/${id}` : gateway.endpoint(id),
      }),
    })),
    logs: () => gateway.logs(),
    async [Symbol.asyncDispose]() {
      await gateway[Symbol.asyncDispose]();
      await stopAll(started);
    },
  };
}

export async function direct(places: readonly Place[], root: string): Promise<Stage> {
  const started = await Promise.all(places.map((place) => start(place, root)));
  return {
    targets: started.map(({ upstream, isDual, transport, ledger, url, args }) => ({
      upstream,
      isDual,
      transport,
      ledger,
      addressFor: () => (url === undefined ? { kind: 'stdio', args } : { kind: 'http', url }),
    })),
    logs: () => started.map(({ child }) => child?.logs() ?? '').join('\n'),
    async [Symbol.asyncDispose]() {
      await stopAll(started);
    },
  };
}
