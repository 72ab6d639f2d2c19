import { systemCode } from '../thrown.ts';
import type { AuditOtlpConfig } from '../config/values/config.ts';
import { DIRECT_EGRESS, type EgressConfig } from '../config/values/credentials.ts';
import { Egress } from '../egress/egress.ts';
import type { AuditSink, FoundRecords } from './audit-sink.ts';
import type { AuditKey } from './chain.ts';
import { logsRequest, type OtlpResource, rejectedIn } from './otlp-logs.ts';
import { StateHead } from './state-head.ts';

/** Codes of failures before anything of a request was sent. */
const UNSENT: ReadonlySet<string> = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
]);

/** Codes of certificates that are not trusted. Then nothing of a request was sent either. */
const UNTRUSTED = /^(?:ERR_TLS_CERT|CERT_|DEPTH_ZERO_SELF_SIGNED|SELF_SIGNED_CERT|UNABLE_TO_(?:GET_ISSUER|VERIFY))/;

const REQUEST_TIMEOUT = 408;

export interface OtlpSinkParts {
  readonly receiver: AuditOtlpConfig;
  readonly egress: EgressConfig | undefined;
  readonly resource: OtlpResource;
  /** Bytes of lines after which a record is due from which records can be verified without the ones before. */
  readonly maxBytes: number;
}

/** Sends records to a receiver of OTLP logs over HTTP. The signed head is in the state directory. */
export class OtlpSink implements AuditSink {
  readonly found: FoundRecords;
  readonly savesHeadFirst = true;
  readonly #head: StateHead;
  readonly #parts: OtlpSinkParts;
  readonly #egress: Egress;
  #size = 0;
  #isInDoubt = false;

  private constructor(head: StateHead, parts: OtlpSinkParts) {
    this.#head = head;
    this.found = head.found;
    this.#parts = parts;
    this.#egress = new Egress({ ...DIRECT_EGRESS, ...parts.egress, tls: parts.receiver.tls });
  }

  /** @throws {StartError} if another process uses the state directory for it. */
  static async open(stateDir: string, keys: readonly AuditKey[], parts: OtlpSinkParts): Promise<OtlpSink> {
    return new OtlpSink(await StateHead.open(stateDir, 'otlp', keys), parts);
  }

  get isInDoubt(): boolean {
    return this.#isInDoubt;
  }

  /** @throws {Error} if the receiver does not accept all lines. Its message is for operators, without secrets. */
  async append(lines: string): Promise<void> {
    const answer = await this.#post(logsRequest(lines.split('\n').slice(0, -1), this.#parts.resource));
    const { status, ok } = answer;
    // With other codes a receiver has refused the request as a whole.
    this.#isInDoubt = !ok && (status < 400 || status >= 500 || status === REQUEST_TIMEOUT);
    if (!ok) throw new Error(`the OTLP receiver answered with HTTP ${status}`);
    const rejected = rejectedIn(await answer.text());
    this.#isInDoubt = rejected > 0;
    if (rejected > 0) throw new Error(`the OTLP receiver rejected ${rejected} records`);
    this.#size += lines.length;
  }

  async #post(body: string): Promise<Response> {
    const { endpoint, headers } = this.#parts.receiver;
    try {
      return await this.#egress.fetch(endpoint, 'configured', {
        method: 'POST',
        headers: { ...headers, 'content-type': 'application/json' },
        body,
        keepsConnection: true,
      });
    } catch (thrown) {
      this.#isInDoubt = mayBeSent(systemCode(thrown) ?? '');
      throw thrown;
    }
  }

  saveHead(text: string): Promise<void> {
    return this.#head.save(text);
  }

  isFull(bytes: number): boolean {
    return this.#size > 0 && this.#size + bytes > this.#parts.maxBytes;
  }

  async rotate(): Promise<void> {
    this.#size = 0;
  }

  async close(): Promise<void> {
    await this.#egress[Symbol.asyncDispose]();
    await this.#head.release();
  }
}

function mayBeSent(code: string): boolean {
  return !UNSENT.has(code) && !UNTRUSTED.test(code);
}
