import { z } from 'zod';
import { jsonOf } from '../json/record.ts';

/** `SEVERITY_NUMBER_INFO`. */
const SEVERITY_INFO = 9;

const RECORD = z.looseObject({
  seq: z.int(),
  time: z.string(),
  kind: z.string(),
  mac: z.string(),
  traceId: z.string().optional(),
});

const ANSWER = z.looseObject({
  partialSuccess: z.looseObject({ rejectedLogRecords: z.coerce.number().optional() }).nullish(),
});

/** Attributes of the process that makes the records, by their names in OpenTelemetry. */
export type OtlpResource = Readonly<Record<string, string>>;

/**
 * Returns the body of an export of audit records in OTLP's JSON. The body of each log record is the line as it was chained.
 *
 * @param lines of {@link chainLine}.
 * @see https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
 */
export function logsRequest(lines: readonly string[], resource: OtlpResource): string {
  const scopeLogs = [{ scope: { name: 'linkspan.audit' }, logRecords: lines.map(logRecordOf) }];
  return JSON.stringify({ resourceLogs: [{ resource: { attributes: textAttributes(resource) }, scopeLogs }] });
}

function logRecordOf(line: string) {
  const { seq, time, kind, mac, traceId } = RECORD.parse(JSON.parse(line));
  const timeUnixNano = `${Date.parse(time)}000000`;
  const attributes = [
    // 64-bit numbers are texts in OTLP's JSON.
    { key: 'linkspan.audit.seq', value: { intValue: String(seq) } },
    ...textAttributes({ 'linkspan.audit.kind': kind, 'linkspan.audit.mac': mac }),
  ];
  return {
    timeUnixNano,
    observedTimeUnixNano: timeUnixNano,
    severityNumber: SEVERITY_INFO,
    severityText: 'INFO',
    eventName: `linkspan.audit.${kind}`,
    body: { stringValue: line },
    attributes,
    ...(traceId === undefined ? {} : { traceId }),
  };
}

function textAttributes(values: OtlpResource) {
  return Object.entries(values).map(([key, value]) => ({ key, value: { stringValue: value } }));
}

/** Returns the number of log records that a receiver has rejected, by the body of its answer; 0 if it does not say so. */
export function rejectedIn(answer: string): number {
  return ANSWER.safeParse(jsonOf(answer)).data?.partialSuccess?.rejectedLogRecords ?? 0;
}
