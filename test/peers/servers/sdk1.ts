/** A server as a user of the TypeScript SDK 1.x writes it. Usage: node sdk1.ts ID stdio|http|sse */
import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { completable } from '@modelcontextprotocol/sdk/server/completable.js';
import { McpServer, ResourceTemplate } from '@modelcontextprotocol/sdk/server/mcp.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { SubscribeRequestSchema, UnsubscribeRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import * as z from 'zod';
import { listenLocally } from '../../support/local-port.ts';

const [, , id = '', transport = 'stdio'] = process.argv;
const watched = `peer://${id}/watched`;
let cancelled = 0;
let touched = 0;

const text = (value: string) => ({ content: [{ type: 'text' as const, text: value }] });
const starting = (all: readonly string[], start: string) => all.filter((one) => one.startsWith(start));

/** Creates the server of one session. */
function peer(): McpServer {
  const server = new McpServer(
    { name: `peer-${id}`, version: '1.0.0' },
    {
      instructions: 'A peer of the tests.',
      capabilities: { logging: {}, resources: { subscribe: true }, tools: { listChanged: true } },
    },
  );
  let count = 0;

  server.registerTool('echo', { inputSchema: { text: z.string() } }, (args) => text(args.text));
  server.registerTool(
    'add',
    { inputSchema: { a: z.number(), b: z.number() }, outputSchema: { sum: z.number() } },
    ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { sum: a + b } }),
  );
  server.registerTool('fail', {}, () => {
    throw new Error('this tool fails on purpose');
  });
  server.registerTool('progress', {}, async ({ _meta, sendNotification }) => {
    const progressToken = _meta?.progressToken;
    for (const progress of progressToken === undefined ? [] : [1, 2, 3]) {
      const params = { progressToken: progressToken ?? '', progress, total: 3, message: `step ${progress}` };
      await sendNotification({ method: 'notifications/progress', params });
    }
    return text('progressed');
  });
  server.registerTool('log', {}, async ({ sendNotification }) => {
    await sendNotification({
      method: 'notifications/message',
      params: { level: 'info', data: 'a line of the log' },
    });
    return text('logged');
  });
  server.registerTool('ask_name', {}, async ({ requestId }) => {
    const requestedSchema = {
      type: 'object' as const,
      properties: { name: { type: 'string' as const } },
      required: ['name'],
    };
    const options = { relatedRequestId: requestId };
    const answer = await server.server.elicitInput({ message: 'What is your name?', requestedSchema }, options);
    return text(answer.action === 'accept' ? `Hello, ${String(answer.content?.['name'])}` : answer.action);
  });
  server.registerTool('ask_model', {}, async ({ requestId }) => {
    const answer = await server.server.createMessage(
      {
        messages: [{ role: 'user', content: { type: 'text', text: 'the capital of France' } }],
        maxTokens: 10,
      },
      { relatedRequestId: requestId },
    );
    return text(`The model says ${answer.content.type === 'text' ? answer.content.text : ''}`);
  });
  server.registerTool('ask_roots', {}, async ({ requestId }) => {
    const { roots } = await server.server.listRoots({}, { relatedRequestId: requestId });
    return text(roots.map(({ uri }) => uri).join(' '));
  });
  server.registerTool('slow', {}, async ({ signal }) => {
    signal.addEventListener('abort', () => cancelled++);
    await delay(30_000, undefined, { signal });
    return text('slept');
  });
  server.registerTool('count_cancelled', {}, () => text(String(cancelled)));
  server.registerTool('count', {}, () => text(String(++count)));
  server.registerTool('touch', {}, async () => {
    touched++;
    await server.server.sendResourceUpdated({ uri: watched });
    return text('touched');
  });
  server.registerTool('change', {}, () => {
    server.registerTool('added', {}, () => text('added'));
    return text('changed');
  });

  server.registerResource('greeting', `peer://${id}/greeting`, { mimeType: 'text/plain' }, ({ href }) => ({
    contents: [{ uri: href, text: 'Good morning' }],
  }));
  server.registerResource('watched', watched, { mimeType: 'text/plain' }, ({ href }) => ({
    contents: [{ uri: href, text: `touched ${touched} times` }],
  }));
  const users = new ResourceTemplate(`peer://${id}/users/{name}`, {
    list: undefined,
    complete: { name: (start) => starting(['ada', 'grace'], start) },
  });
  server.registerResource('users', users, {}, ({ href }, { name }) => ({
    contents: [{ uri: href, text: `the user ${String(name)}` }],
  }));
  server.server.setRequestHandler(SubscribeRequestSchema, () => ({}));
  server.server.setRequestHandler(UnsubscribeRequestSchema, () => ({}));

  const language = completable(z.string(), (start) => starting(['french', 'german'], start));
  server.registerPrompt('greet', { argsSchema: { language } }, (args) => ({
    messages: [{ role: 'user', content: { type: 'text', text: `Greet me in ${args.language}` } }],
  }));
  return server;
}

const sessions = new Map<string, StreamableHTTPServerTransport>();
const streams = new Map<string, SSEServerTransport>();

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const session = request.headers['mcp-session-id'];
  const known = typeof session === 'string' ? sessions.get(session) : undefined;
  if (session !== undefined && known === undefined) {
    response.writeHead(404).end('Session not found');
    return;
  }
  if (known !== undefined) return known.handleRequest(request, response);
  const opened = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (given) => void sessions.set(given, opened),
    onsessionclosed: (given) => void sessions.delete(given),
  });
  await peer().connect(opened);
  await opened.handleRequest(request, response);
}

/** Answers requests of the transport of 2024-11-05. */
async function answerOld(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { pathname, searchParams } = new URL(request.url ?? '/', 'http://127.0.0.1');
  if (request.method === 'GET' && pathname === '/sse') {
    const opened = new SSEServerTransport('/messages', response);
    streams.set(opened.sessionId, opened);
    response.once('close', () => streams.delete(opened.sessionId));
    return peer().connect(opened);
  }
  const known = streams.get(searchParams.get('sessionId') ?? '');
  if (request.method === 'POST' && known !== undefined) return known.handlePostMessage(request, response);
  response.writeHead(404).end();
}

async function listen(): Promise<void> {
  const listener = createServer((request, response) => {
    void (transport === 'sse' ? answerOld(request, response) : answer(request, response));
  });
  const port = await listenLocally(listener);
  console.log(JSON.stringify({ url: `http://127.0.0.1:${port}/${transport === 'sse' ? 'sse' : 'mcp'}` }));
}

await (transport === 'stdio' ? peer().connect(new StdioServerTransport()) : listen());
