import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type MemoryUpstream, memoryUpstream, result } from '../support/memory-upstream.ts';
import { listenLocally } from '../support/local-port.ts';

/** Serves HTTP on a port of its own: each request goes to `respond`. */
export async function serving(
  respond: (incoming: IncomingMessage, outgoing: ServerResponse) => void,
): Promise<AsyncDisposable & { readonly url: string }> {
  const server = createServer(respond);
  const port = await listenLocally(server);
  return {
    url: `http://127.0.0.1:${port}/mcp`,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

export interface HoldingUpstream {
  readonly memory: MemoryUpstream;
  /** Resolves when this number of calls is being held. */
  readonly holding: (count: number) => Promise<void>;
  /** Answers all held calls. */
  readonly release: () => void;
}

/** Returns an upstream with the tools `echo`, which answers at once, and `hold`, which answers when the test releases it. */
export function holdingUpstream(): HoldingUpstream {
  const held: (() => void)[] = [];
  const tools = ['echo', 'hold'].map((name) => ({ name, inputSchema: { type: 'object' } }));
  const memory: MemoryUpstream = memoryUpstream({
    lists: { tools },
    request: (peer, request) => {
      const answer = () => peer.send(result(request, { content: [{ type: 'text', text: 'fine' }] }));
      if (request.params?.string('name') === 'hold') held.push(answer);
      else answer();
    },
  });
  return {
    memory,
    holding: async (count) => {
      await memory.until(() => (held.length >= count ? true : undefined));
    },
    release: () => {
      for (const answer of held.splice(0)) answer();
    },
  };
}
