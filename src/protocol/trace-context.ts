import { isObjectText, RawObject } from '../json/json.ts';
import { unlessMalformed } from '../json/malformed.ts';
import { withMeta } from './meta.ts';

/**
 * The trace and the span that a request belongs to, as W3C Trace Context writes them. Not checked.
 *
 * @see https://modelcontextprotocol.io/community/seps/414-request-meta
 */
export interface TraceContext {
  readonly traceparent: string;
  readonly tracestate: string | undefined;
}

/** Returns the trace context in the `_meta` of a request; undefined if it has none. */
export function traceContextIn(params: RawObject | undefined): TraceContext | undefined {
  const raw = params?.raw('_meta');
  if (raw?.includes('"traceparent"') !== true || !isObjectText(raw)) return undefined;
  // Malformed text is refused where it is needed. Here it names no trace.
  return unlessMalformed(() => {
    const meta = RawObject.parse(raw);
    return readTraceContext((name) => meta.string(name));
  }, undefined);
}

/** Returns the trace context that has these members, which may be headers. */
export function readTraceContext(read: (name: string) => string | undefined): TraceContext | undefined {
  const traceparent = read('traceparent');
  return traceparent === undefined ? undefined : { traceparent, tracestate: read('tracestate') };
}

/** Returns the parameters with this trace context in `_meta`, in place of any other. */
export function withTraceContext(params: RawObject | undefined, { traceparent, tracestate }: TraceContext): RawObject {
  return withMeta(params ?? RawObject.EMPTY, [
    ['traceparent', JSON.stringify(traceparent)],
    ['tracestate', tracestate === undefined ? undefined : JSON.stringify(tracestate)],
  ]);
}
