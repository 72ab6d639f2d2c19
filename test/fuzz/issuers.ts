import { setImmediate as nextTurn, setTimeout as delay } from 'node:timers/promises';
import type { AuthConfig } from '../../src/config/values/config.ts';
import type { TokenAuth } from '../../src/config/values/credentials.ts';
import { GatewayError } from '../../src/errors.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { Dice } from './dice.ts';
import type { Finding } from './engine.ts';
import { RIGHT, slowCarrier, wrongCarrier } from './issuer-carriers.ts';
import {
  introspectionDocument,
  type IssuerDocument,
  jwksDocument,
  metadataDocument,
  tokenDocument,
} from './issuer-documents.ts';
import { IssuerKey } from './issuer-key.ts';
import { ENDPOINT, type IssuerClient, RealIssuerClient } from './issuer-subject.ts';
import { type IssuerRoute, type IssuerScript, ScriptedIssuer } from './scripted-issuer.ts';
import { membersOf, parsed } from './spy.ts';
import { Trap } from './trap.ts';
import { urlOf } from './urls.ts';

/** Answers of issuers that are wrong or hostile, to the parts of the gateway that ask them, in the process of the fuzzer. */
export const ISSUERS = { name: 'issuers', inputs: 400 };

/** Time of the processor for one input, also for the issuer. */
const MAX_MS = 500; // subject
const TRIES = 3;
const MAX_TAKEN_BYTES = 16 * 1_024 * 1_024;
const MAX_REQUESTS = 4;
const SLOW_AT_ONCE = 1_000;
/** More of them say nothing new. */
const MAX_FINDINGS = 10;
const ROUTES: readonly IssuerRoute[] = ['metadata', 'token', 'jwks', 'introspect'];
const OTHER_ISSUER = 'https://other.example.com';

type Add = (oracle: Finding['oracle'], text: string) => void;

/** One input: the route whose answer is wrong, and the answers. */
interface Play {
  readonly wrong: IssuerRoute;
  readonly kind: TokenAuth['kind'];
  readonly script: IssuerScript;
  readonly document: IssuerDocument;
  readonly isSlow: boolean;
  /** True if the answer arrives whole as JSON with status 200. */
  readonly isWhole: boolean;
  readonly shown: string;
  readonly secrets: Readonly<Record<'client' | 'subject' | 'access' | 'opaque' | 'claim', string>>;
}

function playOf(dice: Dice, index: number, issuer: string, key: string, trapPort: number): Play {
  const names = ['client', 'subject', 'access', 'opaque', 'claim'] as const;
  const [client, subject, access, opaque, claim] = names.map((name) => `SECRET-${name}-${index}-end`);
  const secrets = {
    client: client ?? '',
    subject: subject ?? '',
    access: access ?? '',
    opaque: opaque ?? '',
    claim: claim ?? '',
  };
  const wrong = dice.one(ROUTES);
  const other = `http://127.0.0.1:${trapPort}/x`;
  const isDocumentWrong = dice.below(4) > 1;
  const carrier = dice.once(40)
    ? slowCarrier(dice)
    : isDocumentWrong || dice.once(4)
      ? RIGHT
      : wrongCarrier(dice, other);
  const others = [other, `https://127.0.0.1:${trapPort}/`, urlOf(dice, trapPort), urlOf(dice, trapPort)];
  const claims = { iss: issuer, sub: 'fuzz', aud: ENDPOINT, scope: 'a', email: secrets.claim };
  const make = (route: IssuerRoute): IssuerDocument => {
    const isWrong = isDocumentWrong && route === wrong;
    switch (route) {
      case 'metadata':
        return metadataDocument(dice, isWrong, issuer, others);
      case 'token':
        return tokenDocument(dice, isWrong, secrets.access);
      case 'jwks':
        return jwksDocument(dice, isWrong, key);
      case 'introspect':
        return introspectionDocument(dice, isWrong, claims);
    }
  };
  const scripted = (route: IssuerRoute) => ({ text: make(route).text, carrier: route === wrong ? carrier : RIGHT });
  const document = make(wrong);
  const script = {
    metadata: scripted('metadata'),
    token: scripted('token'),
    jwks: scripted('jwks'),
    introspect: scripted('introspect'),
    [wrong]: { text: document.text, carrier },
  };
  return {
    wrong,
    kind: dice.one(['clientCredentials', 'exchange']),
    script,
    document,
    isSlow: carrier.isSlow,
    isWhole: carrier.isRight,
    shown: `${wrong}: ${carrier.name}: ${document.text.slice(0, 300)}`,
    secrets,
  };
}

/** Lets the parts of the gateway ask issuers. @param client the real ones, or those of the test of the oracles. */
export async function checkIssuers(
  seed: number,
  inputs: number,
  client: IssuerClient = new RealIssuerClient(),
  patienceMs = PATIENCE_MS,
): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  await using trap = await Trap.start();
  await using issuer = await ScriptedIssuer.start();
  await using _client = client;
  const key = new IssuerKey({ aud: ENDPOINT });
  let rejections = 0;
  const onRejection = () => rejections++;
  process.on('unhandledRejection', onRejection);
  const run = async (index: number, isSlow: boolean): Promise<void> => {
    const url = `${issuer.origin}/${index}`;
    const dice = new Dice(seed * 1_000_003 + index);
    const play = playOf(dice, index, url, JSON.stringify(key.publicJwk), trap.port);
    if (play.isSlow !== isSlow) return;
    const add: Add = (oracle, text) =>
      findings.push({ oracle, text: text.slice(0, 500), category: ISSUERS.name, input: play.shown });
    let leastMs = Infinity;
    for (let tries = 0; tries < TRIES && leastMs > MAX_MS; tries++) {
      const before = process.threadCpuUsage();
      issuer.play(index, play.script);
      const asked = play.wrong === 'metadata' || play.wrong === 'token' ? checkCredential : checkTokens;
      const over = new AbortController();
      const late = delay(patienceMs, 'late' as const, { signal: over.signal }).catch(() => undefined);
      const outcome = await Promise.race([asked(play, url, client, key, add), late]);
      over.abort();
      if (outcome === 'late') add('silent', `no outcome after ${patienceMs} ms`);
      judgeRequests(issuer.stop(index), play, url, add);
      await nextTurn();
      if (!isSlow) judgeLog(client.takeLog(), add);
      const { user, system } = process.threadCpuUsage(before);
      leastMs = isSlow ? 0 : (user + system) / 1_000;
    }
    if (leastMs > MAX_MS) add('delay', `it took ${leastMs.toFixed(0)} ms of the processor`);
    if (rejections > 0) add('rejections', `${rejections} rejections that nobody handles`);
    rejections = 0;
    if (trap.connections > 0) add('denied', 'something connected to a host that nobody has configured');
    const taken = issuer.takeMostBytes();
    if (taken > MAX_TAKEN_BYTES) add('memory', `a client has read ${taken} bytes`);
    if ('polluted' in {}) add('foreign', 'a document has changed the prototype of objects');
  };
  try {
    for (let index = 0; index < inputs && findings.length < MAX_FINDINGS; index++) await run(index, false);
    for (let from = 0; from < inputs && findings.length < MAX_FINDINGS; from += SLOW_AT_ONCE) {
      const numbers = Array.from({ length: Math.min(SLOW_AT_ONCE, inputs - from) }, (_, i) => from + i);
      await Promise.all(numbers.map((index) => run(index, true)));
      const add: Add = (oracle, text) => findings.push({ oracle, text, category: ISSUERS.name, input: 'slow answers' });
      judgeLog(client.takeLog(), add);
    }
  } finally {
    process.off('unhandledRejection', onRejection);
  }
  return findings;
}

function judgeLog(log: string, add: Add): void {
  const [, secret] = /(SECRET-[a-z]+-\d+-end|Basic [A-Za-z0-9+/=]{8,})/.exec(log) ?? [];
  if (secret === undefined) return;
  const at = log.indexOf(secret);
  add('foreign', `the log has a secret: ${log.slice(Math.max(0, at - 250), at + 60)}`);
}

/** Returns a document as clients read it: a byte order mark is no part of UTF-8 text. */
function documentIn(text: string): unknown {
  return parsed(text.replace(/^\ufeff/, ''));
}

/** Returns whether metadata are those of the issuer, as `JSON.parse` reads them. */
function readMetadata(play: Play, url: string): { readonly isOwn: boolean; readonly endpoint: URL | null } {
  const { issuer, token_endpoint: endpoint } = membersOf(documentIn(play.script.metadata.text));
  return { isOwn: issuer === url, endpoint: typeof endpoint === 'string' ? URL.parse(endpoint) : null };
}

function judgeRequests(
  requests: readonly { readonly method: string; readonly path: string }[],
  play: Play,
  url: string,
  add: Add,
): void {
  const shown = requests.map(({ method, path }) => `${method} ${path}`).join(', ');
  if (requests.length > MAX_REQUESTS) add('operation', `${requests.length} requests: ${shown}`);
  const { pathname } = new URL(url);
  const { isOwn, endpoint } = readMetadata(play, url);
  for (const { method, path } of requests) {
    const isKnown =
      method === 'GET'
        ? path === `${pathname}/jwks` || path === `${pathname}/none` || path.includes('/.well-known/')
        : path === `${pathname}/introspect` ||
          (isOwn && endpoint !== null && path === endpoint.pathname + endpoint.search);
    if (!isKnown) add('operation', `nobody has named ${method} ${path}`);
  }
}

async function checkCredential(
  play: Play,
  url: string,
  client: IssuerClient,
  _key: IssuerKey,
  add: Add,
): Promise<void> {
  const auth: TokenAuth = {
    kind: play.kind,
    issuer: url,
    clientId: 'gateway',
    method: 'client_secret_basic',
    clientSecret: play.secrets.client,
    scopes: [],
    stepUpScopes: [],
    parameters: {},
  };
  const isRight = play.document.isRight && play.isWhole;
  try {
    const [name, value = ''] = await client.credential(auth, play.secrets.subject);
    if (!readMetadata(play, url).isOwn) add('forged', 'the metadata of another issuer were used');
    if (name !== 'authorization' || !/^Bearer [\x21-\x7e]+$/.test(value)) {
      add('framing', `no header can carry ${JSON.stringify(value.slice(0, 100))}`);
    }
    const answered = membersOf(documentIn(play.script.token.text))['access_token'];
    if (
      play.script.token.carrier.isRight &&
      !String(answered).includes('@ECHO@') &&
      value !== `Bearer ${String(answered)}`
    ) {
      add('operation', `the issuer answered with ${String(answered)}, and the upstream gets ${value.slice(0, 100)}`);
    }
  } catch (thrown) {
    judgeFailure(thrown, add);
    if (isRight) add('answered', `a right answer is refused: ${String(thrown)}`);
  }
}

function judgeFailure(thrown: unknown, add: Add): void {
  if (!(thrown instanceof GatewayError)) return add('alive', `it failed with ${String(thrown)}`);
  if (/SAID|SECRET/.test(thrown.message)) add('foreign', `clients read the answer of the issuer: ${thrown.message}`);
  for (let cause = thrown.cause, left = 8; cause instanceof Error && left > 0; cause = cause.cause, left--) {
    if (/^(?:TypeError|RangeError|ReferenceError)$/.test(cause.name)) {
      add('alive', `it failed with ${cause.name}: ${cause.message}`);
    }
  }
}

async function checkTokens(play: Play, url: string, client: IssuerClient, key: IssuerKey, add: Add): Promise<void> {
  const isJwks = play.wrong === 'jwks';
  const common = { issuer: url, audiences: [ENDPOINT], requiredScopes: [] };
  const own = { clientId: 'gateway', clientSecret: play.secrets.client, tokenPrefix: '' };
  const other = {
    ...common,
    issuer: OTHER_ISSUER,
    jwksUrl: `${url}/none`,
    algorithms: ['RS256', 'PS256', 'ES256', 'EdDSA'],
  };
  const auth: AuthConfig = isJwks
    ? {
        jwt: [{ ...common, jwksUrl: `${url}/jwks`, algorithms: ['RS256', 'PS256', 'ES256', 'EdDSA'] }, other],
        apiKeys: [],
      }
    : { jwt: [], apiKeys: [], introspection: [{ ...common, ...own, endpoint: `${url}/introspect` }] };
  const ask = client.verdicts(auth);
  const right = isJwks ? key.sign({}, { iss: url }) : play.secrets.opaque;
  const verdict = await verdictOf(ask, right, add);
  if (verdict?.kind === 'principal' && !mayAccept(play, url, key))
    add('forged', 'a token is accepted that the issuer does not vouch for');
  if (verdict?.kind === 'principal' && verdict.principal.issuer !== url)
    add('forged', `it is of ${verdict.principal.issuer}`);
  if (verdict?.kind === 'refused' && play.isWhole && play.document.isRight)
    add('answered', `a right token is refused: ${verdict.why}`);
  if (verdict?.kind === 'refused' && !play.isWhole && verdict.status !== 503) {
    add('status', `the issuer cannot be read, and the token gets ${verdict.status}`);
  }
  if (!isJwks) return;
  const stranger = new IssuerKey({ aud: ENDPOINT, iss: url });
  const forged = [
    stranger.sign({}, {}),
    stranger.sign({ kid: undefined }, {}),
    stranger.sign({ jwk: stranger.publicJwk }, {}),
    key.sign({ alg: 'none' }, { iss: url }),
    key.sign({ alg: 'HS256' }, { iss: url }),
    key.sign({ alg: 'HS256', kid: 'oct' }, { iss: url }, Buffer.from('AAAA', 'base64url').toString('latin1')),
    key.sign({}, { iss: OTHER_ISSUER }),
  ];
  for (const token of forged) {
    const answer = await verdictOf(ask, token, add);
    if (answer?.kind === 'principal') add('forged', `accepted: ${token.slice(0, 200)}`);
  }
}

async function verdictOf(ask: ReturnType<IssuerClient['verdicts']>, token: string, add: Add) {
  try {
    return await ask(token);
  } catch (thrown) {
    add('alive', `it failed with ${thrown instanceof Error ? `${thrown.name}: ${thrown.message}` : String(thrown)}`);
    return undefined;
  }
}

/** Returns whether the answer of the issuer lets its right token in, as `JSON.parse` reads it. */
function mayAccept(play: Play, url: string, key: IssuerKey): boolean {
  const answer = membersOf(documentIn(play.script[play.wrong].text));
  if (play.wrong === 'jwks') {
    const keys: readonly unknown[] = Array.isArray(answer['keys']) ? answer['keys'] : [];
    return keys.some((one) => membersOf(one)['x'] === key.publicJwk.x);
  }
  const audiences = [answer['aud']].flat();
  return answer['active'] === true && audiences.includes(ENDPOINT) && (answer['iss'] ?? url) === url;
}
