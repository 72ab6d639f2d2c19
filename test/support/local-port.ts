import { once } from 'node:events';
import type { Server } from 'node:net';

/** Lets a server listen on this machine. Resolves with its port. @param port 0 for any. */
export async function listenLocally(server: Server, port = 0, host = '127.0.0.1'): Promise<number> {
  server.listen(port, host);
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
}
