import { offering } from '../conformance/offering.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { type ClientCell, connectClient } from './clients.ts';
import type { PeerClient, Place, Question } from './clients/client.ts';
import { type RunningServer, SERVER_CELLS, startServer } from './servers.ts';

const UP_MS = 30_000;

/** A server of another project, and a gateway with the default config in front of it. */
export interface Setting extends AsyncDisposable {
  readonly gateway: RunningGateway;
  readonly server: RunningServer;
  /** The address of the server's own endpoint at the gateway. */
  readonly place: Place;
  /** Returns `peer://<id>/<path>`. */
  uri(path: string): string;
  connect(client: ClientCell, declares?: readonly Question[]): Promise<PeerClient>;
}

type Config = Readonly<Record<string, unknown>>;

interface SettingOptions {
  /** The config entry, if it differs from the one of `startServer`. */
  readonly config?: (server: RunningServer) => Config | Promise<Config>;
}

/** @param id such as `python2-stdio`. @throws {Error} if the gateway does not list the server's tools in time. */
export async function startSetting(id: string, { config }: SettingOptions = {}): Promise<Setting> {
  const cell = SERVER_CELLS.find((one) => one.id === id);
  if (cell === undefined) throw new Error(`no such server: ${id}`);
  await using stack = new AsyncDisposableStack();
  const server = stack.use(await startServer(cell));
  const gateway = stack.use(await startGateway({ mcpServers: { [id]: (await config?.(server)) ?? server.config } }));
  const place = { kind: 'http' as const, url: gateway.endpoint(id) };
  const lister = async () => {
    const client = await connectClient({ client: 'typescript1', mode: 'legacy' }, place, []);
    const tools = async () => (await client.tools()).map((name) => ({ name }));
    return { tools, [Symbol.asyncDispose]: () => client[Symbol.asyncDispose]() };
  };
  await (await offering(lister, ['echo'], UP_MS))[Symbol.asyncDispose]();
  const owned = stack.move();
  return {
    gateway,
    server,
    place,
    uri: (path) => `peer://${id}/${path}`,
    connect: (client, declares = []) => connectClient(client, place, declares),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}
