import type { AuditConfig } from '../config/values/config.ts';
import { digitsOf } from '../json/changed-number.ts';
import type { RawObject } from '../json/json.ts';
import { redacted } from '../telemetry/redact.ts';
import type { AuditEvent } from './audit-event.ts';
import type { AuditWriter } from './audit-writer.ts';
import { type AuditKey, digestOf } from './chain.ts';

/** The depth of the arguments of a call in its message. The redaction keeps a URL only at depth 0. */
const ARGUMENTS_DEPTH = 1;

/** The members of a record about arguments. */
export type AuditedArgumentFields = Pick<AuditEvent, 'argumentsDigest' | 'argumentsText'>;

/** The audit log as the parts of the gateway see it. */
export class AuditTrail {
  /** True if a call that cannot be recorded is refused. */
  readonly isRequired: boolean;
  readonly #log: AuditWriter;
  readonly #key: Pick<AuditKey, 'digests'>;
  readonly #arguments: AuditConfig['arguments'];

  constructor(log: AuditWriter, key: Pick<AuditKey, 'digests'>, settings: Pick<AuditConfig, 'required' | 'arguments'>) {
    this.#log = log;
    this.#key = key;
    this.isRequired = settings.required;
    this.#arguments = settings.arguments;
  }

  /** The reason to look at the audit log, in words, while records cannot be written; empty otherwise. */
  get reasons(): readonly string[] {
    if (!this.#log.isFailing) return [];
    return [`the audit log cannot be written; ${this.isRequired ? 'calls are refused' : 'its records wait'}`];
  }

  /** Adds a record. Never throws: a record that cannot be written is counted. */
  record(event: AuditEvent): void {
    this.#log.record(event);
  }

  /** Resolves with the number of a record when it is written. @throws {GatewayError} `audit-unavailable` */
  commit(event: AuditEvent): Promise<number> {
    return this.#log.commit(event);
  }

  /** Returns the members of a record about the arguments in these params, by the config. */
  argumentsOf(params: RawObject | undefined): AuditedArgumentFields {
    if (params === undefined || this.#arguments === 'none') return NO_ARGUMENTS;
    const text = params.raw('arguments');
    if (text === undefined) return NO_ARGUMENTS;
    const argumentsDigest = digestOf(this.#key, text);
    return this.#arguments === 'digest'
      ? { argumentsDigest }
      : { argumentsDigest, argumentsText: withoutSecrets(text) };
  }

  /** Writes all records, and releases the log. Never rejects. */
  close(): Promise<void> {
    return this.#log.close();
  }
}

const NO_ARGUMENTS: AuditedArgumentFields = {};

/** Names of members whose values may be secrets, in any spelling. Names with another meaning, such as `max_tokens`, are among them. */
const SECRET_NAME =
  /passw|passphrase|secret|token|api[-_. ]?key|authori[sz]ation|cookie|credential|private[-_. ]?key|access[-_. ]?key/i;
const REDACTED = '[redacted]';

/**
 * Returns the JSON text of arguments without the values of members that may hold secrets. A number that a double cannot hold is a text of its
 * digits. Returns `null` for a broken text.
 */
function withoutSecrets(text: string): string {
  try {
    const value: unknown = JSON.parse(text, (name: string, member: unknown, at?: { readonly source?: string }) => {
      if (member !== null && SECRET_NAME.test(name)) return REDACTED;
      const source = typeof member === 'number' ? at?.source : undefined;
      return source !== undefined && digitsOf(source) !== digitsOf(String(member)) ? source : member;
    });
    return JSON.stringify(redacted({ arguments: value }, ARGUMENTS_DEPTH)['arguments']) ?? 'null';
  } catch {
    return 'null';
  }
}
