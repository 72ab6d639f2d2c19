import {
  type Context,
  defaultTextMapGetter,
  defaultTextMapSetter,
  type Span as OtelSpan,
  ROOT_CONTEXT,
  SpanKind as OtelKind,
  SpanStatusCode,
  trace,
  type Tracer,
} from '@opentelemetry/api';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import { LIMITS } from '../../limits.ts';
import { shownText } from '../../peer-text.ts';
import type { TraceContext } from '../../protocol/trace-context.ts';
import type { Span, SpanEnd, SpanKind } from './tracing.ts';

const KINDS: Readonly<Record<SpanKind, OtelKind>> = {
  server: OtelKind.SERVER,
  client: OtelKind.CLIENT,
  internal: OtelKind.INTERNAL,
};

const propagator = new W3CTraceContextPropagator();

/** Begins a span. `parent` is a context of {@link contextFrom}; none begins a trace. */
export function beginSpan(tracer: Tracer, kind: SpanKind, name: string, parent: Context = ROOT_CONTEXT): TracedSpan {
  return new TracedSpan(tracer, tracer.startSpan(shownText(name), { kind: KINDS[kind] }, parent));
}

/**
 * Returns the context that a peer has sent; undefined if it is malformed.
 *
 * @param onTooLong runs if a member is too long: spans keep parts of it.
 */
export function contextFrom({ traceparent, tracestate }: TraceContext, onTooLong: () => void): Context | undefined {
  if (traceparent.length > LIMITS.traceContextChars || (tracestate?.length ?? 0) > LIMITS.traceContextChars) {
    onTooLong();
    return undefined;
  }
  const extracted = propagator.extract(ROOT_CONTEXT, { traceparent, tracestate }, defaultTextMapGetter);
  return trace.getSpanContext(extracted) === undefined ? undefined : extracted;
}

/** A span of the OpenTelemetry SDK. */
class TracedSpan implements Span {
  readonly #tracer: Tracer;
  readonly #span: OtelSpan;

  constructor(tracer: Tracer, span: OtelSpan) {
    this.#tracer = tracer;
    this.#span = span;
  }

  get traceId(): string {
    return this.#span.spanContext().traceId;
  }

  get context(): TraceContext {
    const carrier: { traceparent?: string; tracestate?: string } = {};
    propagator.inject(this.#asContext(), carrier, defaultTextMapSetter);
    const { traceparent = '', tracestate } = carrier;
    // That of a client without one valid member is written as an empty text.
    return { traceparent, tracestate: tracestate === '' ? undefined : tracestate };
  }

  child(kind: SpanKind, name: string): Span {
    return beginSpan(this.#tracer, kind, name, this.#asContext());
  }

  link(other: Span): void {
    const linked = contextFrom(other.context, () => undefined);
    if (linked !== undefined) this.linkTo(linked);
  }

  /** Records that the span of a peer led to this one. */
  linkTo(context: Context): void {
    const linked = trace.getSpanContext(context);
    if (linked !== undefined) this.#span.addLink({ context: linked });
  }

  end({ name, attributes = {}, error }: SpanEnd = {}): void {
    if (this.#span.isRecording()) {
      if (name !== undefined) this.#span.updateName(shownText(name));
      for (const [key, value] of Object.entries({ ...attributes, 'error.type': error })) {
        if (value !== undefined) this.#span.setAttribute(key, shownText(value));
      }
      if (error !== undefined) this.#span.setStatus({ code: SpanStatusCode.ERROR });
    }
    this.#span.end();
  }

  #asContext(): Context {
    return trace.setSpan(ROOT_CONTEXT, this.#span);
  }
}
