import { toolCall, type TestCore } from './core.ts';
import { memoryUpstream, type MemoryUpstream, result } from './memory-upstream.ts';
import { inputRequiredIn, type ModernOptions, modernRequest } from './modern-client.ts';

/** Returns an upstream whose tool `ask` asks its client once, and ends with the answer. */
export function askingUpstream(): MemoryUpstream {
  const question = { message: 'Sure?', requestedSchema: { type: 'object', properties: {} } };
  const memory: MemoryUpstream = memoryUpstream({
    lists: { tools: [{ name: 'ask', inputSchema: { type: 'object' } }] },
    request: (peer, { method }) => {
      if (method !== 'tools/call') return;
      peer.send(`{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":${JSON.stringify(question)}}`);
    },
    response: (peer) => {
      const [call] = memory.requests('tools/call');
      if (call !== undefined) peer.send(result(call, { content: [] }));
    },
  });
  return memory;
}

/** Calls the tool `up__ask` of {@link askingUpstream}. Returns the params of the retry that answers its question. */
export async function parkedAsk(gateway: TestCore, options: ModernOptions): Promise<object> {
  const first = await modernRequest(gateway, 'tools/call', toolCall('up__ask'), options).reply;
  const { inputRequests, requestState } = inputRequiredIn(first);
  const inputResponses = Object.fromEntries(
    Object.keys(inputRequests).map((key) => [key, { action: 'accept', content: {} }]),
  );
  return { ...toolCall('up__ask'), inputResponses, requestState };
}
