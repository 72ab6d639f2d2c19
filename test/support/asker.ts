import type { Request } from '../../src/protocol/jsonrpc.ts';
import { memoryUpstream, type MemoryUpstream, type Peer, result, type Script } from './memory-upstream.ts';

const TOOL = { inputSchema: { type: 'object' } };

/** One call of the tool `ask`, as the upstream sees it. */
export interface AskingCall {
  readonly peer: Peer;
  readonly request: Request;
  /** The answers to its questions, results or errors, by the name of the question. */
  readonly answers: Map<string, unknown[]>;
  isCancelled: boolean;
}

export interface Asker {
  readonly memory: MemoryUpstream;
  /** Every call so far, by the nonce in its arguments. */
  readonly calls: ReadonlyMap<string, AskingCall>;
  readonly call: (nonce: string) => AskingCall;
  /** Sends a question about this call. @param params or their text. */
  readonly ask: (nonce: string, question: string, method: string, params: object | string) => void;
  /** Answers the call with all answers to its questions. */
  readonly finish: (nonce: string) => void;
}

export interface AskerOptions {
  /** Puts messages about a call on the stream of that call, as over Streamable HTTP. */
  readonly isAttributed?: boolean;
  /** Sends no questions unless the test calls `ask`. */
  readonly isQuiet?: boolean;
  readonly script?: Script;
}

function nonceOf({ params }: Request): string {
  return params?.object('arguments')?.string('nonce') ?? '';
}

/** A legacy server. Its tool `ask` sends questions about the nonce in its arguments, and returns the answers. */
export function asker({ isAttributed = false, isQuiet = false, script = {} }: AskerOptions = {}): Asker {
  const calls = new Map<string, AskingCall>();
  const call = (nonce: string) => {
    const found = calls.get(nonce);
    if (found === undefined) throw new Error(`never called with ${nonce}`);
    return found;
  };
  const ask = (nonce: string, question: string, method: string, params: object | string) => {
    const { peer, request } = call(nonce);
    const id = JSON.stringify(`${question} ${nonce}`);
    const paramsText = typeof params === 'string' ? params : JSON.stringify(params);
    const text = `{"jsonrpc":"2.0","id":${id},"method":"${method}","params":${paramsText}}`;
    peer.send(text, isAttributed ? Number(request.id) : undefined);
  };
  const finish = (nonce: string) => {
    const { peer, request, answers } = call(nonce);
    const text = JSON.stringify({ nonce, answers: Object.fromEntries(answers) });
    peer.send(result(request, { content: [{ type: 'text', text }] }));
  };
  const memory = memoryUpstream({
    capabilities: { tools: {}, prompts: {}, resources: {}, logging: {}, completions: {} },
    lists: {
      tools: [
        { name: 'ask', ...TOOL },
        { name: 'other', ...TOOL },
      ],
      prompts: [{ name: 'ask', arguments: [{ name: 'nonce' }] }],
      resources: [{ uri: 'test://a', name: 'a' }],
    },
    ...script,
    request: (peer, request) => {
      if (request.params?.string('name') !== 'ask') {
        if (script.request === undefined) peer.send(result(request, {}));
        else script.request(peer, request);
        return;
      }
      const nonce = nonceOf(request);
      calls.set(nonce, { peer, request, answers: new Map(), isCancelled: false });
      if (!isQuiet) ask(nonce, 'q', 'elicitation/create', formOf(nonce));
    },
    notification: (peer, { method, params }) => {
      if (method !== 'notifications/cancelled') return;
      for (const one of calls.values()) {
        if (one.peer === peer && one.request.id === params?.raw('requestId')) one.isCancelled = true;
      }
    },
    response: (_peer, response) => {
      const [question = '', nonce = ''] = String(JSON.parse(response.id)).split(' ');
      const { answers } = call(nonce);
      const value: unknown = response.kind === 'result' ? JSON.parse(response.result) : { error: response.error };
      answers.set(question, [...(answers.get(question) ?? []), value]);
      if (!isQuiet) finish(nonce);
    },
  });
  return { memory, calls, call, ask, finish };
}

export function formOf(nonce: string): object {
  return { message: `About ${nonce}`, requestedSchema: { type: 'object', properties: { who: { type: 'string' } } } };
}

export function accepted(who: string): object {
  return { action: 'accept', content: { who } };
}
