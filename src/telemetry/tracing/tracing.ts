import type { Request } from '../../protocol/jsonrpc.ts';
import type { TraceContext } from '../../protocol/trace-context.ts';

/**
 * `server`: a request that the gateway answers. `client`: a request that it sends. `internal`: a wait, or the start of
 * a connection.
 */
export type SpanKind = 'server' | 'client' | 'internal';

/** Attributes by their names in OpenTelemetry. Members that are undefined are left out. */
export type Attributes = Readonly<Record<string, string | undefined>>;

export interface SpanEnd {
  /** Replaces the name of the span, if the name was not known when it began. */
  readonly name?: string;
  readonly attributes?: Attributes;
  /** The class of the error, such as a row of `errors.ts`; undefined for success. */
  readonly error?: string | undefined;
}

/** One step in a trace. It is exported after its end. */
export interface Span {
  /** 32 hex digits; the same for all spans of a trace. */
  readonly traceId: string;
  /** The context for a request that is sent as part of this span. */
  readonly context: TraceContext;
  /** Begins a span that is a part of this one. */
  child(kind: SpanKind, name: string): Span;
  /** Records that another span, maybe of another trace, led to this one. */
  link(other: Span): void;
  /** Ends the span. Has no effect if it has ended. */
  end(end?: SpanEnd): void;
}

/** Makes traces, and exports them. Disposing exports the spans that have ended, in bounded time. */
export interface Tracing extends AsyncDisposable {
  /**
   * Begins the span of a client's request, in the trace that its `_meta` or else its headers name.
   *
   * @param header returns a header of the request; undefined if there are none.
   */
  beginRequest(request: Request, header: ((name: string) => string | undefined) | undefined): Span;
  /** Begins a span in a trace of its own. */
  begin(kind: SpanKind, name: string): Span;
}
