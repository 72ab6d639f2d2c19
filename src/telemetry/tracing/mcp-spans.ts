import { GatewayError } from '../../errors.ts';
import { detach } from '../../json/kept-text.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { METHODS } from '../methods.ts';
import type { Operation } from '../operation.ts';
import type { Attributes, Span, SpanEnd, Tracing } from './tracing.ts';

/** One request with its outcome, for the end of its span. */
export interface TracedOperation extends Operation {
  /** JSON-RPC id, as JSON text. */
  readonly id?: string | undefined;
  /** Name of a prompt in the catalog; never text that a client sent. */
  readonly prompt?: string | undefined;
  readonly answer: Answer | GatewayError;
  /** The upstream that the request was for; undefined if it was for none. */
  readonly upstream: string | undefined;
}

const UPSTREAM = 'linkspan.upstream';

/**
 * Returns the end of a request's span, with the names of OpenTelemetry's conventions for MCP. Leaves out all that may hold a
 * secret: session ids, arguments, URIs, results and the messages of errors.
 *
 * @see https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md
 */
export function endOfOperation(operation: TracedOperation): SpanEnd {
  const { method, tool, prompt, error, revision, transport, id, answer, upstream } = operation;
  const target = tool ?? prompt;
  const name = nameOf(method);
  const code = !(answer instanceof GatewayError) && answer.kind === 'error' ? String(answer.error.code) : undefined;
  const attributes: Attributes = {
    'mcp.method.name': name,
    'mcp.protocol.version': revision,
    'network.transport': transport,
    'jsonrpc.request.id': id === undefined ? undefined : String(JSON.parse(id)),
    'rpc.response.status_code': code,
    'gen_ai.operation.name': method === 'tools/call' ? 'execute_tool' : undefined,
    'gen_ai.tool.name': detached(tool),
    'gen_ai.prompt.name': detached(prompt),
    [UPSTREAM]: upstream,
  };
  return { name: target === undefined ? name : `${name} ${target}`, attributes, error };
}

/** Returns a copy, because a span outlives the message that the text is a part of. */
function detached(text: string | undefined): string | undefined {
  return text === undefined ? undefined : detach(text);
}

/** Methods of server requests. */
const QUESTIONS: ReadonlySet<string> = new Set(['sampling/createMessage', 'elicitation/create', 'roots/list']);

/** Returns the method as the name of a span. Methods outside the specification share a name, because peers choose them. */
export function nameOf(method: string): string {
  return METHODS.has(method) || QUESTIONS.has(method) ? method : '_other';
}

/** Traces a wait for an upstream as a part of `parent`. Returns the same promise if there is no parent. */
export function traceWait<T>(parent: Span | undefined, step: string, upstream: string, wait: Promise<T>): Promise<T> {
  return parent === undefined ? wait : endAfter(parent.child('internal', `${step} ${upstream}`), upstream, wait);
}

/** Ends a span that belongs to an upstream when the promise settles. */
export async function endAfter<T>(span: Span, upstream: string, wait: Promise<T>): Promise<T> {
  try {
    const value = await wait;
    span.end(endOfStep(upstream));
    return value;
  } catch (thrown) {
    span.end(endOfStep(upstream, thrown instanceof GatewayError ? thrown.code : 'internal-error'));
    throw thrown;
  }
}

/**
 * Traces the start of a connection: of its process, if it has one, and the handshake. Without a parent, it is a trace of its own.
 * Returns the same promise if nothing is traced.
 */
export function traceStart<T>(
  tracing: Tracing | undefined,
  parent: Span | undefined,
  upstream: string,
  starting: Promise<T>,
): Promise<T> {
  if (tracing === undefined) return starting;
  const name = `start ${upstream}`;
  return endAfter(parent?.child('internal', name) ?? tracing.begin('internal', name), upstream, starting);
}

/** Returns the end of a span that belongs to an upstream and is no request. */
export function endOfStep(upstream: string, error?: string): SpanEnd {
  return { attributes: { [UPSTREAM]: upstream }, error };
}

/** Returns the end of the span of a question that the gateway has sent to a client. */
export function endOfQuestion(method: string, answer: Answer | GatewayError, upstream: string): SpanEnd {
  const isFailure = answer instanceof GatewayError;
  const error = isFailure ? answer.code : answer.kind === 'error' ? 'rpc_error' : undefined;
  const code = !isFailure && answer.kind === 'error' ? String(answer.error.code) : undefined;
  const attributes = { 'mcp.method.name': nameOf(method), 'rpc.response.status_code': code, [UPSTREAM]: upstream };
  return { attributes, error };
}
