import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { initialize } from '../downstream/client.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import type { Target } from './input.ts';
import { FuzzIssuer } from './issuer.ts';
import { RawHttp } from './raw-http.ts';
import { AuditTail, type AuditRecord, type GaugeReading, readGauge } from './readings.ts';
import { Spy } from './spy.ts';

const KEY = 'a-key-of-the-fuzzer-0123456789';
const OPERATOR_KEY = 'a-key-of-its-operator-0123456789';
const sha256 = (key: string) => createHash('sha256').update(key).digest('hex');
export const GAUGE = new URL('gauge.ts', import.meta.url).href;
const STDIO = new URL('raw-stdio.ts', import.meta.url).pathname;

/** A gateway that gets inputs. */
export interface Subject extends AsyncDisposable {
  readonly spies: readonly Spy[];
  readonly isRunning: boolean;
  /** The last lines of its log. */
  logs(): string;
  gauge(): Promise<GaugeReading>;
  /** Resolves with the audit records since the last call, when the one with this nonce is written. */
  records(nonce: string): Promise<readonly AuditRecord[]>;
  /** Opens a session if the last one has ended. */
  target(): Promise<Target>;
}

/** Allows all but `hidden`, `echo` with `deny: true`, and secret files: what oracles know of `isDenied`. */
const ACCESS = {
  roles: {
    user: {
      upstreams: ['*'],
      deny: [
        { tools: ['hidden'] },
        { tools: ['echo'], when: 'has(args.deny) && args.deny == true' },
        { resources: ['file:///secret/*', 'file:///secret'] },
      ],
    },
  },
  grants: [{ roles: ['user'], anyone: true }],
};

/** The real gateway as a process of its own, with spies behind it. */
export class GatewaySubject implements Subject {
  readonly spies: readonly Spy[];
  readonly #gateway: RunningGateway;
  readonly #issuer: FuzzIssuer;
  readonly #web: RawHttp;
  readonly #audit: AuditTail;
  #session: string | undefined;

  private constructor(gateway: RunningGateway, spies: readonly Spy[], issuer: FuzzIssuer, web: RawHttp) {
    this.#gateway = gateway;
    this.#web = web;
    this.spies = spies;
    this.#issuer = issuer;
    this.#audit = new AuditTail(join(gateway.dir, 'audit.log'));
  }

  static async start(dir: string): Promise<GatewaySubject> {
    const spies = [await Spy.start('leg', 'legacy'), await Spy.start('mod', 'modern')];
    const [issuer, web] = [await FuzzIssuer.start(), await RawHttp.start()];
    const remotes = spies.map(({ id, url }) => [
      id,
      { url, era: id === 'mod' ? 'modern' : 'legacy', isolation: 'shared' },
    ]);
    const timeouts = { call: '1s', max: '1s', firstByte: '1s' };
    const gateway = await startGateway(
      {
        mcpServers: {
          ...Object.fromEntries(remotes),
          web: { url: web.url, era: 'legacy', isolation: 'shared', timeouts },
          pipe: { command: process.execPath, args: [STDIO], era: 'legacy', isolation: 'shared', timeouts },
        },
        gateway: {
          auth: {
            apiKeys: [{ name: 'fuzz', sha256: sha256(KEY) }],
            jwt: [{ issuer: FuzzIssuer.ISSUER, audiences: [FuzzIssuer.AUDIENCE], jwksUrl: issuer.jwksUrl }],
          },
          access: ACCESS,
          operatorKeys: [{ name: 'ops', sha256: sha256(OPERATOR_KEY) }],
          audit: { file: join(dir, 'audit.log'), arguments: 'full' },
          limits: { message: '256KiB' },
          logLevel: 'info',
          accessLog: 'none',
        },
      },
      {
        dir,
        env: { NODE_OPTIONS: `--import=${GAUGE}`, LINKSPAN_FUZZ_GAUGE: join(dir, 'gauge') },
      },
    );
    return new GatewaySubject(gateway, spies, issuer, web);
  }

  get isRunning(): boolean {
    return this.#gateway.isRunning;
  }

  logs(): string {
    return this.#gateway.logs().slice(-2_000);
  }

  gauge(): Promise<GaugeReading> {
    return readGauge(join(this.#gateway.dir, 'gauge'));
  }

  records(nonce: string): Promise<readonly AuditRecord[]> {
    return this.#audit.until(nonce);
  }

  async target(): Promise<Target> {
    const port = Number(new URL(this.#gateway.url).port);
    const authorization = `Bearer ${KEY}`;
    const isOpen =
      this.#session !== undefined && (await isAlive(this.#gateway.endpoint(), this.#session, authorization));
    if (!isOpen) this.#session = await initialize(this.#gateway.endpoint(), undefined, { authorization });
    return {
      port,
      operatorPort: Number(new URL(this.#gateway.operatorUrl).port),
      operatorKey: OPERATOR_KEY,
      key: KEY,
      session: this.#session ?? '',
      token: this.#issuer.sign,
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#gateway.stop();
    for (const one of [...this.spies, this.#issuer, this.#web]) await one[Symbol.asyncDispose]();
  }
}

async function isAlive(url: string, session: string, authorization: string): Promise<boolean> {
  const headers = { authorization, 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' });
  const response = await fetch(url, { method: 'POST', headers: { ...headers, 'mcp-session-id': session }, body });
  await response.text();
  return response.status === 200;
}
