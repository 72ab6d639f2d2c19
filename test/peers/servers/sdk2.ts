/**
 * A server as a user of the TypeScript SDK 2.x writes it: the same for both eras, with sessions for the legacy one.
 *
 *     node sdk2.ts ID stdio|http
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import {
  completable,
  createMcpHandler,
  inputRequired,
  isInitializeRequest,
  type McpRequestContext,
  McpServer,
  ResourceTemplate,
  WebStandardStreamableHTTPServerTransport,
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';
import { listen, refusal } from '../../fixtures/conformance/http.ts';

const [, , id = '', transport = 'stdio'] = process.argv;
const watched = `peer://${id}/watched`;
let cancelled = 0;
let touched = 0;

const NAME = { type: 'object' as const, properties: { name: { type: 'string' as const } }, required: ['name'] };
const ANSWER = z.object({ action: z.string(), content: z.object({ name: z.string() }).optional() });

const text = (value: string) => ({ content: [{ type: 'text' as const, text: value }] });
const starting = (all: readonly string[], start: string) => all.filter((one) => one.startsWith(start));
const hello = (answer: unknown) => {
  const { action, content } = ANSWER.parse(answer);
  return text(content === undefined ? action : `Hello, ${content.name}`);
};

/** Creates the server of one session, or of one request of 2026-07-28. */
function peer({ era }: Pick<McpRequestContext, 'era'>): McpServer {
  const server = new McpServer(
    { name: `peer-${id}`, version: '1.0.0' },
    {
      instructions: 'A peer of the tests.',
      capabilities: { logging: {}, resources: { subscribe: true }, tools: { listChanged: true } },
    },
  );
  let count = 0;

  server.registerTool('echo', { inputSchema: z.object({ text: z.string() }) }, (args) => text(args.text));
  server.registerTool(
    'add',
    { inputSchema: z.object({ a: z.number(), b: z.number() }), outputSchema: z.object({ sum: z.number() }) },
    ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { sum: a + b } }),
  );
  server.registerTool('fail', {}, () => {
    throw new Error('this tool fails on purpose');
  });
  server.registerTool('progress', {}, async ({ mcpReq }) => {
    const progressToken = mcpReq._meta?.progressToken;
    for (const progress of progressToken === undefined ? [] : [1, 2, 3]) {
      const params = { progressToken: progressToken ?? '', progress, total: 3, message: `step ${progress}` };
      await mcpReq.notify({ method: 'notifications/progress', params });
    }
    return text('progressed');
  });
  server.registerTool('log', {}, async ({ mcpReq }) => {
    await mcpReq.log('info', 'a line of the log');
    return text('logged');
  });
  // In sessions the server sends a request; in 2026-07-28 it asks by its result. This follows the SDK's
  // documentation.
  server.registerTool('ask_name', {}, async ({ mcpReq }) => {
    return hello(await mcpReq.elicitInput({ message: 'What is your name?', requestedSchema: NAME }));
  });
  server.registerTool('ask_name_by_result', {}, ({ mcpReq }) => {
    const answer = mcpReq.inputResponses?.['name'];
    if (answer !== undefined) return hello(answer);
    const question = inputRequired.elicit({ message: 'What is your name?', requestedSchema: NAME });
    return inputRequired({ inputRequests: { name: question } });
  });
  server.registerTool('ask_model', {}, async ({ mcpReq }) => {
    const answer = await mcpReq.requestSampling({
      messages: [{ role: 'user', content: { type: 'text', text: 'the capital of France' } }],
      maxTokens: 10,
    });
    return text(`The model says ${'text' in answer.content ? answer.content.text : ''}`);
  });
  server.registerTool('ask_roots', {}, async ({ mcpReq }) => {
    const { roots } = await mcpReq.send({ method: 'roots/list' });
    return text(roots.map(({ uri }) => uri).join(' '));
  });
  server.registerTool('slow', {}, async ({ mcpReq: { signal } }) => {
    signal.addEventListener('abort', () => cancelled++);
    await delay(30_000, undefined, { signal });
    return text('slept');
  });
  server.registerTool('count_cancelled', {}, () => text(String(cancelled)));
  server.registerTool('count', {}, () => text(String(++count)));
  server.registerTool('era', {}, () => text(era));
  server.registerTool('touch', {}, async () => {
    touched++;
    if (era === 'modern' && transport === 'http') modern.notify.resourceUpdated(watched);
    else await server.server.sendResourceUpdated({ uri: watched });
    return text('touched');
  });
  server.registerTool('change', {}, async () => {
    if (era === 'modern' && transport === 'http') modern.notify.toolsChanged();
    else await server.server.sendToolListChanged();
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
  server.server.setRequestHandler('resources/subscribe', () => ({}));
  server.server.setRequestHandler('resources/unsubscribe', () => ({}));

  const language = completable(z.string(), (start) => starting(['french', 'german'], start));
  server.registerPrompt('greet', { argsSchema: z.object({ language }) }, (args) => ({
    messages: [{ role: 'user', content: { type: 'text', text: `Greet me in ${args.language}` } }],
  }));
  return server;
}

const modern = createMcpHandler(peer, { legacy: 'reject' });
const sessions = new Map<string, WebStandardStreamableHTTPServerTransport>();

async function legacy(request: Request, body: string | undefined): Promise<Response> {
  const parsedBody: unknown = body === undefined ? undefined : JSON.parse(body);
  const given = request.headers.get('mcp-session-id');
  const known = given === null ? undefined : sessions.get(given);
  if (known !== undefined) return known.handleRequest(request, { parsedBody });
  if (given !== null) return refusal(404, 'Session not found');
  if (!isInitializeRequest(parsedBody)) return refusal(400, 'Mcp-Session-Id header is required');
  const opened = new WebStandardStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (session) => void sessions.set(session, opened),
    onsessionclosed: (session) => void sessions.delete(session),
  });
  await peer({ era: 'legacy' }).connect(opened);
  return opened.handleRequest(request, { parsedBody });
}

if (transport === 'stdio') serveStdio(peer);
else console.log(JSON.stringify(await listen({ legacy, modern: (request) => modern.fetch(request) })));
