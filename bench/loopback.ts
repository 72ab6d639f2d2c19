import { once } from 'node:events';
import type { Server } from 'node:net';

/** Listens on 127.0.0.1 at a free port. @returns the port. */
export async function listenOnLoopback(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (typeof address !== 'object' || address === null) throw new Error('not listening on a port');
  return address.port;
}

/** Listens, and prints the line that `Program.listening` waits for. */
export async function serve(server: Server): Promise<void> {
  const port = await listenOnLoopback(server);
  console.log(JSON.stringify({ msg: 'listening', url: `http://127.0.0.1:${port}/mcp` }));
}
