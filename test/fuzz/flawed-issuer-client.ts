import type { AuthVerdict } from '../../src/auth/authenticate.ts';
import type { AuthConfig } from '../../src/config/values/config.ts';
import type { TokenAuth } from '../../src/config/values/credentials.ts';
import { GatewayError } from '../../src/errors.ts';
import type { HeaderList } from '../../src/http1/request.ts';
import type { OracleName } from './oracles.ts';
import { type IssuerClient, RealIssuerClient } from './issuer-subject.ts';
import { membersOf, parsed } from './spy.ts';

/** The oracles of answers of issuers, each of which has a defect below. */
export const ISSUER_FLAWS = [
  'alive',
  'delay',
  'memory',
  'silent',
  'framing',
  'status',
  'operation',
  'denied',
  'answered',
  'forged',
  'foreign',
] as const satisfies readonly OracleName[];
type IssuerFlaw = (typeof ISSUER_FLAWS)[number];

const BUSY_MS = 600; // subject

/** The parts of the real gateway with one defect, for the test of the oracles. */
export class FlawedIssuerClient implements IssuerClient {
  readonly #flaw: IssuerFlaw;
  readonly #real = new RealIssuerClient();
  #logged = '';

  constructor(flaw: IssuerFlaw) {
    this.#flaw = flaw;
  }

  async credential(auth: TokenAuth, subjectToken: string): Promise<HeaderList> {
    const { issuer = '' } = auth;
    await this.#misbehave(issuer);
    if (this.#flaw === 'operation') await request(`${issuer}/guessed`, 'POST');
    const metadata = `${new URL(issuer).origin}/.well-known/x${new URL(issuer).pathname}`;
    if (this.#flaw === 'denied') await followed(metadata);
    if (this.#flaw === 'memory') await request(metadata, 'GET');
    if (this.#flaw === 'framing') return ['authorization', 'Bearer a\r\nx: 1'];
    if (this.#flaw === 'foreign') this.#logged += subjectToken;
    if (this.#flaw === 'answered') throw new GatewayError('upstream-unavailable');
    return await this.#real.credential(auth, subjectToken);
  }

  verdicts(auth: AuthConfig): (token: string) => Promise<AuthVerdict> {
    const ask = this.#real.verdicts(auth);
    const [jwt] = auth.jwt;
    let isFirst = true;
    return async (token) => {
      if (isFirst) await this.#misbehave(jwt?.issuer ?? '');
      if (this.#flaw === 'memory' && jwt !== undefined && isFirst) await request(jwt.jwksUrl, 'GET');
      isFirst = false;
      if (this.#flaw === 'forged') {
        const payload = membersOf(parsed(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()));
        const issuer = String(payload['iss']);
        return { kind: 'principal', principal: { key: 'x', label: 'x', issuer, scopes: [] } };
      }
      const verdict = await ask(token);
      const isLenient = this.#flaw === 'status' && verdict.kind === 'refused';
      return isLenient ? { ...verdict, status: 401 } : verdict;
    };
  }

  takeLog(): string {
    const logged = this.#logged;
    this.#logged = '';
    return logged + this.#real.takeLog();
  }

  async #misbehave(issuer: string): Promise<void> {
    if (this.#flaw === 'alive') throw new TypeError(`cannot read ${issuer}`);
    if (this.#flaw === 'silent') await new Promise(() => undefined);
    const before = process.threadCpuUsage();
    const usedMs = () => {
      const { user, system } = process.threadCpuUsage(before);
      return (user + system) / 1_000;
    };
    while (this.#flaw === 'delay' && usedMs() < BUSY_MS);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#real[Symbol.asyncDispose]();
  }
}

/** Reads a whole answer, whatever its size. */
async function request(url: string, method: 'GET' | 'POST', redirect: 'manual' | 'follow' = 'manual'): Promise<void> {
  try {
    await (await fetch(url, { method, redirect })).text();
  } catch {
    // The answer is wrong, and the request was sent.
  }
}

/** Follows redirects. */
async function followed(url: string): Promise<void> {
  await request(url, 'GET', 'follow');
}
