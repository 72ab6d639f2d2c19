import { createHash, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { pinned, Program } from './program.ts';

export const ISSUER = 'https://issuer.example.com';
export const AUDIENCE = 'https://gateway.example.com/mcp';

/** The settings of a gateway that checks its clients, and the header with which it accepts them. */
export interface Guarded {
  readonly settings: object;
  readonly authorization: string;
  /** The issuer, if there is one. */
  readonly program?: Program;
}

/** Prepares a gateway that checks its clients. @param core the core of the issuer. @throws {Error} */
export type Guard = (dir: string, core: number | undefined) => Promise<Guarded>;

/** One API key. */
const withKey: Guard = () => {
  const key = randomBytes(32).toString('base64url');
  const sha256 = createHash('sha256').update(key).digest('hex');
  const settings = { auth: { apiKeys: [{ name: 'bench', sha256 }] } };
  return Promise.resolve({ settings, authorization: `Bearer ${key}` });
};

/** Tokens of an issuer, signed with ES256. */
const withToken: Guard = async (dir, core) => {
  const file = fileURLToPath(new URL('issuer.ts', import.meta.url));
  const program = await Program.start('issuer', pinned(core, [process.execPath, file]), dir);
  const jwksUrl = await program.listening();
  const [, token = ''] = /"token":"([^"]+)"/.exec(await program.log()) ?? [];
  const settings = { auth: { jwt: [{ issuer: ISSUER, jwksUrl, audiences: [AUDIENCE] }] } };
  return { settings, authorization: `Bearer ${token}`, program };
};

const RULES = 200;

/** The rules of one role, most of them about other tools: a tenth has a condition on the arguments. */
function rules(): Readonly<Record<string, object>> {
  const role = (number: number) => ({
    upstreams: ['bench'],
    tools: [`tool_${number}_*`, `get_${number}`],
    ...(number % 10 === 0 ? { when: `args.text != "forbidden ${number}"` } : {}),
  });
  const others = Array.from({ length: RULES - 2 }, (_, number): [string, object] => [`r${number}`, role(number)]);
  return {
    ...Object.fromEntries(others),
    bench: { upstreams: ['bench'], deny: [{ upstreams: ['bench'], tools: ['delete_*'] }] },
  };
}

/** A policy of 200 rules that are all about this client. */
function policy(): object {
  const roles = rules();
  return { access: { roles, grants: [{ roles: Object.keys(roles), anyone: true }] } };
}

/** A rate that never refuses. */
const RATES = { rates: [{ name: 'all', to: { anyone: true }, limit: 100_000_000, window: '1h' }] };

/** An audit log. @param name of its file, since several gateways share the folder. */
function auditIn(dir: string, name: string): object {
  return { audit: { file: join(dir, `${name}.log`) } };
}

/** Tokens, and these settings. */
function withTokenAnd(settingsIn: (dir: string) => object): Guard {
  return async (dir, core) => {
    const { settings, ...guarded } = await withToken(dir, core);
    return { ...guarded, settings: { ...settings, ...settingsIn(dir) } };
  };
}

/** The guards that are measured, by the id of their subject. The parts of the last one have tokens too. */
export const GUARDS = [
  { id: 'gateway-key', title: 'gateway, clients with an API key', guard: withKey },
  { id: 'gateway-jwt', title: 'gateway, clients with a JWT', guard: withToken },
  { id: 'gateway-policy', title: 'gateway, JWT and a policy of 200 rules', guard: withTokenAnd(policy) },
  { id: 'gateway-rates', title: 'gateway, JWT and a rate', guard: withTokenAnd(() => RATES) },
  { id: 'gateway-audit', title: 'gateway, JWT and audit', guard: withTokenAnd((dir) => auditIn(dir, 'audit')) },
  {
    id: 'gateway-guarded',
    title: 'gateway, JWT, policy of 200 rules, rates and audit',
    guard: withTokenAnd((dir) => ({ ...policy(), ...RATES, ...auditIn(dir, 'guarded') })),
  },
] as const;
